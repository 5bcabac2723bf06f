//! Forms and calls of the provisioning service. A network comes out as it was typed or not at all; what is secret never
//! comes back; nothing is done without the token, and no answer can be made to say what a visitor wants.

use std::rc::Rc;

use actors::provisioning::{
    portal::{Answer, Portal, Site},
    visit::{Door, Visit},
    welcome::{Attempt, IdentityDoor, Result as Outcome, Welcome},
};
use board::{
    doorway::Request,
    network::{Security, Seen, Ssid},
};
use board_sim::random::Random;

use super::{noise, spoil};

/// Marks what may never be shown.
const SECRET: &str = "s3cr3t";
/// What a visitor would like the page to say.
const EVIL: &str = "<script>evil()</script>";
/// Answers that there are.
const STATUSES: [u16; 11] = [200, 204, 302, 303, 400, 403, 404, 405, 409, 415, 421];

fn ssid(random: &Random) -> Ssid {
    loop {
        let name = if random.chance(30) { EVIL.as_bytes().to_vec() } else { noise(random, 32) };
        if let Some(ssid) = Ssid::new(&name) {
            return ssid;
        }
    }
}

fn welcome(random: &Random) -> Welcome {
    let seen = |_| Seen { ssid: ssid(random), signal: 50, security: Security::Wpa2, frequency_mhz: 2412, heard: None };
    let networks: Rc<[Seen]> = (0..random.below(5)).map(seen).collect();
    let results = [
        Outcome::Trying,
        Outcome::Joined { address: None, online: random.chance(50) },
        Outcome::Failed(format!("wrong password for {EVIL}").into()),
    ];
    Welcome {
        manufacturer: EVIL.into(),
        hostname: EVIL.into(),
        networks,
        identity: *random.pick(&[IdentityDoor::Wanted, IdentityDoor::Open, IdentityDoor::Shut]),
        attempt: random.chance(50).then(|| Attempt {
            number: 1,
            ssid: ssid(random),
            result: random.pick(&results).clone(),
        }),
        stays: random.chance(50),
        ..Welcome::default()
    }
}

fn request(method: &str, target: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Request {
    let mut all = vec![("host".to_owned(), "10.42.0.1".to_owned()), ("accept".to_owned(), "text/html".to_owned())];
    all.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let visitor = ([10, 42, 0, 9], 5000).into();
    Request { method: method.into(), target: target.into(), headers: all, body, visitor }
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02x}")).collect()
}

/// A form in one of the two encodings: content type and body.
fn form(random: &Random, fields: &[(&str, Vec<u8>)]) -> (String, Vec<u8>) {
    if random.chance(50) {
        let pairs: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        return ("application/x-www-form-urlencoded".into(), pairs.join("&").into_bytes());
    }
    let boundary = format!("----x{}", random.any());
    let mut body = Vec::new();
    for (name, value) in fields {
        body.extend(format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").bytes());
        body.extend(value);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{boundary}--\r\n").bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}

/// What must hold of every answer. `secret`: nothing secret may be in it; a form that was spoilt may have put it elsewhere.
fn sound(answer: &Answer, secret: bool) -> Result<(), String> {
    let Answer { response, .. } = answer;
    let body = String::from_utf8_lossy(&response.body);
    let known = STATUSES.contains(&response.status) || response.status == 422;
    if !known {
        return Err(format!("status {}", response.status));
    }
    for banned in ["<script>evil", SECRET] {
        if let Some(at) = body.find(banned).filter(|_| banned != SECRET || secret) {
            let shown: String = body.chars().skip(body[..at].chars().count().saturating_sub(200)).take(400).collect();
            return Err(format!("the answer says what it may not: {shown}"));
        }
    }
    let loud =
        |(_, value): &(&str, std::borrow::Cow<'_, str>)| value.chars().any(char::is_control) || value.contains("evil");
    if response.headers.iter().any(loud) {
        return Err(format!("headers {:?}", response.headers));
    }
    Ok(())
}

pub(super) fn round(random: &Random) -> Result<(), String> {
    let address = "10.42.0.1:80".parse().map_err(|_| "an address")?;
    let site = Site {
        address,
        prefix: 24,
        hotspot: EVIL.into(),
        captive_api: random.chance(50).then(|| format!("https://{EVIL}/api")),
    };
    let mut portal = Portal::new(site, [random.any().to_le_bytes()[0]; 32]);
    let welcome = welcome(random);
    let permits = |_: Door, _: &Visit| Ok(());
    let page = portal.answer(&request("GET", "/", &[], Vec::new()), &welcome, &permits);
    sound(&page, true)?;
    let page = String::from_utf8_lossy(&page.response.body).into_owned();
    let token =
        page.split("name=\"token\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();

    let name = ssid(random);
    let letters = random.below(50);
    let password: String =
        (0..letters).map(|_| char::from(b' ' + random.any().to_le_bytes()[0] % 95)).collect::<String>() + SECRET + "ok";
    let hex: String = name.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let fields = [
        ("token", token.as_bytes().to_vec()),
        ("network", format!("x{hex}").into_bytes()),
        ("name", EVIL.as_bytes().to_vec()),
        ("password", password.clone().into_bytes()),
        ("credentials", Vec::new()),
    ];
    let (kind, body) = form(random, &fields);
    let good = request("POST", "/join", &[("content-type", &kind)], body);
    let answer = portal.answer(&good, &welcome, &permits);
    sound(&answer, true)?;
    let as_typed = answer.visits.iter().any(|(_, visit)| match visit {
        Visit::Network(given) => given.ssid == name && given.psk.as_ref().is_some_and(|psk| psk.expose() == password),
        _ => false,
    });
    if !as_typed || answer.visits.len() != 1 {
        return Err(format!("{name:?} did not come out as it was typed"));
    }

    let mut bad = good.clone();
    spoil(random, &mut bad.body);
    if random.chance(30) {
        let mut kind = kind.into_bytes();
        spoil(random, &mut kind);
        bad.headers.retain(|(name, _)| name != "content-type");
        bad.headers.push(("content-type".into(), String::from_utf8_lossy(&kind).into_owned()));
    }
    let said = String::from_utf8_lossy(&bad.body).to_lowercase();
    // Spoiling may have left some signs of it escaped and others not.
    let plain =
        (b' '..=b'~').fold(said, |said, sign| said.replace(&format!("%{sign:02x}"), &char::from(sign).to_string()));
    let has_token = plain.to_lowercase().contains(token);
    let answer = portal.answer(&bad, &welcome, &permits);
    sound(&answer, false)?;
    if !answer.visits.is_empty() && !has_token {
        return Err("something was done without the token".into());
    }

    let method = *random.pick(&[
        "GetSmartMachineStatus",
        "GetNetworkList",
        "SetNetworkCredentials",
        "SetSmartMachineCredentials",
        "Nothing",
    ]);
    let text = random.chance(30);
    let kind = if text { "application/grpc-web-text" } else { "application/grpc-web+proto" };
    let mut body = [&[0, 0, 0, 0, 14][..], b"\x0a\x04wifi\x12\x06s3cr3t"].concat();
    spoil(random, &mut body);
    let target = format!("/x.provisioning.v1.ProvisioningService/{method}");
    let call = request("POST", &target, &[("content-type", kind)], body);
    let answer = portal.answer(&call, &welcome, &permits);
    if answer.response.status != 200 || !answer.response.body.ends_with(b"\n") && !text {
        return Err(format!("a call of {method} has no status"));
    }

    let targets = ["/", "/state", "/generate_204", "http://evil.example.com/", "/captive-portal/api", "//", "*"];
    let mut target = random.pick(&targets).as_bytes().to_vec();
    spoil(random, &mut target);
    let mut other = request("GET", &String::from_utf8_lossy(&target), &[("user-agent", EVIL)], Vec::new());
    if random.chance(50) {
        other.headers[0].1 = String::from_utf8_lossy(&noise(random, 30)).into_owned();
    }
    sound(&portal.answer(&other, &welcome, &permits), true)
}
