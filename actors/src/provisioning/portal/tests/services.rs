//! The provisioning service.

use api::pb::platform::provisioning::v1::{
    ApiKey, CloudConfig, GetNetworkListResponse, GetSmartMachineStatusResponse, SetNetworkCredentialsRequest,
    SetSmartMachineCredentialsRequest, provisioning_service,
};
use prost::Message;

use super::*;

const KIND: &str = "application/grpc-web+proto";

fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

fn call(path: &str, message: &impl Message) -> Request {
    let headers = [("content-type", KIND), ("host", "device.example.com"), ("origin", "http://localhost:3000")];
    Request { body: framed(&message.encode_to_vec()), ..asks("POST", path, &headers, "") }
}

/// The message and the text of the status.
fn opened(body: &[u8]) -> (Vec<u8>, String) {
    let mut message = Vec::new();
    let mut rest = body;
    loop {
        let [flag, a, b, c, d, tail @ ..] = rest else { panic!("no status: {body:?}") };
        let (content, after) = tail.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        if *flag == 0x80 {
            assert_eq!(after, b"", "the status is the last frame");
            return (message, String::from_utf8(content.to_vec()).unwrap());
        }
        message = content.to_vec();
        rest = after;
    }
}

fn answered(request: &Request, welcome: &Welcome) -> (Vec<u8>, String, Vec<String>) {
    let answer = portal().answer(request, welcome, &anything);
    assert_eq!(answer.response.status, 200);
    assert_eq!(header(&answer.response, "Access-Control-Allow-Origin"), Some("*"));
    let (message, status) = opened(&answer.response.body);
    let visits = visits(&answer).into_iter().filter(|visit| visit != "App Came").collect();
    (message, status, visits)
}

const OK: &str = "grpc-status:0\r\n";

#[test]
fn every_method_of_the_contract_answers_under_every_vendors_name() {
    use provisioning_service as service;
    let network = SetNetworkCredentialsRequest { r#type: "wifi".into(), ssid: "Home".into(), psk: "12345678".into() };
    let cloud = CloudConfig { id: "p".into(), secret: "s".into(), app_address: "https://f".into(), api_key: None };
    let machine = SetSmartMachineCredentialsRequest { cloud: Some(cloud) };
    for (path, message, visit) in [
        (service::GET_SMART_MACHINE_STATUS.path, vec![], vec![]),
        (service::GET_NETWORK_LIST.path, vec![], vec![]),
        (service::SET_NETWORK_CREDENTIALS.path, network.encode_to_vec(), vec!["App Network Home 12345678"]),
        (service::SET_SMART_MACHINE_CREDENTIALS.path, machine.encode_to_vec(), vec!["App Identity https://f p"]),
        (service::EXIT_PROVISIONING.path, vec![], vec!["App Leave"]),
    ] {
        let (_, method) = path.rsplit_once('/').unwrap();
        for path in [path.to_owned(), format!("/acme.provisioning.v1.ProvisioningService/{method}")] {
            let request = Request { body: framed(&message), ..call(&path, &()) };
            let (_, status, visits) = answered(&request, &welcome());
            assert_eq!((status.as_str(), visits), (OK, visit.iter().map(ToString::to_string).collect()), "{path}");
        }
    }
    for path in [
        "/provisioning.v1.ProvisioningService/GetNetworkList",
        "/a.b.provisioning.v1.ProvisioningService/GetNetworkList",
    ] {
        assert_eq!(portal().answer(&call(path, &()), &welcome(), &anything).response.status, 421, "{path} is none");
    }
    let none = call("/platform.provisioning.v1.ProvisioningService/Explode", &());
    assert!(answered(&none, &welcome()).1.starts_with("grpc-status:12\r\n"));
}

#[test]
fn what_is_told() {
    let failed = Welcome {
        attempt: ended(Outcome::Failed("wrong password for Home".into())),
        complaints: Rc::from(["fragment_id is missing".into()]),
        joined: Some(ssid("Café")),
        ..welcome()
    };
    let (message, status, visits) = answered(&call(provisioning_service::GET_SMART_MACHINE_STATUS.path, &()), &failed);
    let told = GetSmartMachineStatusResponse::decode(&*message).unwrap();
    assert_eq!((status.as_str(), visits), (OK, vec!["App SawResult".to_owned()]));
    let info = told.provisioning_info.unwrap();
    assert_eq!((info.fragment_id, info.model, info.manufacturer), ("f-1".into(), "Arm 7".into(), "Acme".into()));
    assert_eq!(told.errors, ["wrong password for Home", "fragment_id is missing"]);
    let attempt = told.latest_connection_attempt.unwrap();
    assert_eq!((attempt.ssid, attempt.last_error), ("Home".into(), "wrong password for Home".into()));
    assert!(!told.has_smart_machine_credentials && !told.is_online && !attempt.connected);
    assert_eq!(told.agent_version, "1.2.3");

    let (message, ..) = answered(&call(provisioning_service::GET_NETWORK_LIST.path, &()), &failed);
    let list = GetNetworkListResponse::decode(&*message).unwrap().networks;
    let shown: Vec<_> =
        list.iter().map(|n| (&*n.r#type, &*n.ssid, &*n.security, n.signal, n.connected, &*n.last_error)).collect();
    assert_eq!(
        shown,
        [
            ("wifi", "Home", "WPA2 WPA3", 82, false, "wrong password for Home"),
            ("wifi", "Café", "-", 40, true, ""),
            ("wifi", "Campus", "802.1X", 20, false, ""),
        ]
    );
    let (message, _, visits) = answered(&call(provisioning_service::GET_SMART_MACHINE_STATUS.path, &()), &done());
    let told = GetSmartMachineStatusResponse::decode(&*message).unwrap();
    assert!(told.has_smart_machine_credentials && told.is_online && told.latest_connection_attempt.unwrap().connected);
    assert_eq!((told.errors.len(), visits.len()), (0, 1));
}

#[test]
fn what_is_given_wrongly_is_refused_in_words() {
    let network = |kind: &str, ssid: &str, psk: &str| {
        let message = SetNetworkCredentialsRequest { r#type: kind.into(), ssid: ssid.into(), psk: psk.into() };
        call(provisioning_service::SET_NETWORK_CREDENTIALS.path, &message)
    };
    let machine = |id: &str, secret: &str, app_address: &str, key: Option<(&str, &str)>| {
        let api_key = key.map(|(id, key)| ApiKey { id: id.into(), key: key.into() });
        let cloud = CloudConfig { id: id.into(), secret: secret.into(), app_address: app_address.into(), api_key };
        call(
            provisioning_service::SET_SMART_MACHINE_CREDENTIALS.path,
            &SetSmartMachineCredentialsRequest { cloud: Some(cloud) },
        )
    };
    let table = [
        ("hidden", network("wifi", "Attic", ""), "0", "App Network Attic - hidden"),
        ("a key", machine("p", "", "https://f", Some(("i", "k"))), "0", "App Identity https://f p"),
        (
            "an empty key beside a secret",
            machine("p", "s", "https://f", Some(("", ""))),
            "0",
            "App Identity https://f p",
        ),
        ("wired", network("wired", "Home", ""), "3", "the only type"),
        ("no name", network("wifi", "", ""), "3", "choose a network"),
        ("a short password", network("wifi", "Home", "1234567"), "3", "8 to 63 characters"),
        ("no address", machine("p", "s", "", None), "3", "app_address"),
        ("no id", machine("", "s", "https://f", None), "3", "app_address and an id"),
        ("no proof", machine("p", "", "https://f", None), "3", "a secret or an API key"),
        ("half a key", machine("p", "s", "https://f", Some(("i", ""))), "3", "an id and a key"),
        ("nobody", call(provisioning_service::SET_SMART_MACHINE_CREDENTIALS.path, &()), "3", "app_address"),
        ("no message", Request { body: b"x".to_vec(), ..network("wifi", "Home", "") }, "3", "no single message"),
        (
            "a lying length",
            Request { body: vec![0, 255, 255, 255, 255, 1], ..network("wifi", "Home", "") },
            "3",
            "no single",
        ),
        ("garbage", Request { body: framed(&[0xff; 9]), ..network("wifi", "Home", "") }, "3", "cannot be read"),
    ];
    for (case, request, code, shown) in table {
        let (_, status, visits) = answered(&request, &welcome());
        assert!(status.starts_with(&format!("grpc-status:{code}\r\n")), "{case}: {status}");
        let text = status + &visits.join(" ");
        assert!(text.contains(shown), "{case}: {text}");
        assert_eq!(visits.is_empty(), code != "0", "{case}");
    }
    let refuse = |_: Door, visit: &Visit| match visit {
        Visit::Identity(_) => Err(Refused::IdentityStays),
        _ => Ok(()),
    };
    let answer = portal().answer(&machine("p", "s", "https://f", None), &welcome(), &refuse);
    let (_, status) = opened(&answer.response.body);
    assert!(status.starts_with("grpc-status:9\r\ngrpc-message:this device belongs"), "{status}");
    assert_eq!(visits(&answer), ["App Came"], "it came, and took nothing");
}

#[test]
fn what_browsers_ask_before_they_call() {
    let path = provisioning_service::GET_NETWORK_LIST.path;
    let names = "content-type,some_client,x-grpc-web,x-user-agent";
    let headers = [
        ("origin", "https://app.example.com"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", names),
        ("access-control-request-private-network", "true"),
    ];
    let answer = portal().answer(&asks("OPTIONS", path, &headers, ""), &welcome(), &anything);
    assert_eq!(answer.response.status, 204);
    assert!(answer.visits.is_empty());
    for (name, value) in [
        ("Access-Control-Allow-Origin", "*"),
        ("Access-Control-Allow-Methods", "POST"),
        ("Access-Control-Allow-Headers", names),
        ("Access-Control-Allow-Private-Network", "true"),
    ] {
        assert_eq!(header(&answer.response, name), Some(value), "{name}");
    }
    let evil = [("access-control-request-headers", "a\r\nSet-Cookie: x")];
    let answer = portal().answer(&asks("OPTIONS", path, &evil, ""), &welcome(), &anything);
    assert_eq!(header(&answer.response, "Access-Control-Allow-Headers"), None);
    for kind in ["application/grpc", "application/json", "application/proto", ""] {
        let request = asks("POST", path, &[("content-type", kind)], "");
        assert_eq!(portal().answer(&request, &welcome(), &anything).response.status, 415, "{kind}");
    }
    assert_eq!(portal().answer(&get(path), &welcome(), &anything).response.status, 415);
}

#[test]
fn frames_may_travel_as_text() {
    let message = SetNetworkCredentialsRequest { r#type: "wifi".into(), ssid: "Home".into(), psk: "12345678".into() };
    let request = call(provisioning_service::SET_NETWORK_CREDENTIALS.path, &message);
    let kind = "application/grpc-web-text; charset=x";
    let text = base64::encoded(&request.body);
    let request = asks("POST", &request.target, &[("content-type", kind)], &text);
    let answer = portal().answer(&request, &welcome(), &anything);
    assert_eq!(header(&answer.response, "Content-Type"), Some("application/grpc-web-text+proto"));
    let (_, status) = opened(&base64::decoded(&answer.response.body).unwrap());
    assert_eq!(status, OK);
    assert_eq!(visits(&answer), ["App Came", "App Network Home 12345678"]);
}
