//! The page and its forms.

use super::*;

const CREDENTIALS: &str = r#"{"cloud": {"app_address": "https://fleet.example.com", "id": "p-1", "secret": "s3cret"}}"#;

/// `Home` as the value of its button.
const HOME: &str = "network=x486f6d65";

fn page(welcome: &Welcome) -> String {
    body(&portal().answer(&get("/"), welcome, &anything).response)
}

/// As it would stand in a form.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[test]
fn everything_is_on_it() {
    let text = page(&Welcome { complaints: Rc::from(["fragment_id is missing".into()]), ..welcome() });
    for part in [
        "Acme",
        "Arm 7",
        "arm-7-0042",
        "f-1",
        "1.2.3",
        "fragment_id is missing",
        "<bdi>Home</bdi>",
        "<bdi>Café</bdi>",
        "WPA2 and WPA3, signal 82 %",
        "no password, signal 40 %",
        "cannot be used",
        "Look again",
        "Another network",
        "name=\"credentials\"",
        "type=\"file\"",
        "enctype=\"multipart/form-data\"",
        "Leave the setup",
        "lang=\"en\"",
    ] {
        assert!(text.contains(part), "{part} is missing");
    }
    assert!(!text.contains("{{"), "a placeholder was left");
    let shut = page(&Welcome { has_identity: true, identity: IdentityDoor::Shut, ..welcome() });
    assert!(!shut.contains("name=\"credentials\"") && !shut.contains("multipart"), "it keeps its identity");
    assert!(shut.contains("only the network can be changed here"));
    let open = page(&Welcome { has_identity: true, identity: IdentityDoor::Open, ..welcome() });
    assert!(open.contains("Make it another machine") && open.contains("name=\"credentials\""));
    let many = |chosen: &str| Welcome {
        networks: (0..12).map(|n| seen(&format!("n{n}"), 50, Security::Wpa2)).collect(),
        attempt: Some(Attempt { number: 1, ssid: ssid(chosen), result: Outcome::Failed("no".into()) }),
        ..welcome()
    };
    assert!(page(&many("n7")).contains("<details><summary>More networks"));
    assert!(page(&many("n11")).contains("<details open><summary>More networks"), "what is chosen is not folded away");
    assert!(page(&Welcome { networks: Rc::from([]), ..welcome() }).contains("No network was heard yet"));
    for name in html::placeholders() {
        let known =
            ["css", "js", "refresh", "problem", "other", "name", "invalid-name", "invalid-password", "enctype", "mood"];
        let shown = page(&welcome()) != page(&Welcome::default());
        assert!(known.contains(&name) || shown, "{name}");
    }
}

#[test]
fn it_is_small_asks_for_nothing_and_says_so() {
    let full = Welcome {
        networks: (0..crate::network::SEEN_MAX).map(|n| seen(&format!("{n:032}"), 100, Security::Wpa2Wpa3)).collect(),
        ..welcome()
    };
    assert!(page(&full).len() <= 30 * 1024, "{} bytes with the longest list", page(&full).len());
    let text = page(&welcome());
    for outside in ["http://", "https://", "src=", "@import", "url(", "//cdn", " on", "style="] {
        let inside = text.matches(outside).count();
        // Of all events, none is in the markup; a word may begin with "on".
        let allowed = if outside == " on" {
            text.matches(" on ").count() + text.matches(" on;").count() + text.matches(" on=").count()
        } else {
            0
        };
        assert!(inside <= allowed + usize::from(outside == " on") * 2, "{outside}: {inside}");
    }
    let response = portal().answer(&get("/"), &welcome(), &anything).response;
    let policy = header(&response, "Content-Security-Policy").unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(header(&response, "X-Content-Type-Options"), Some("nosniff"));
    assert_eq!(header(&response, "Cache-Control"), Some("no-store"));
    // The digests are those of what stands between the tags.
    for tag in ["style", "script"] {
        let inner = text.split(&format!("<{tag}>")).nth(1).and_then(|rest| rest.split(&format!("</{tag}>")).next());
        let hash = base64::encoded(&digest(inner.unwrap().as_bytes()));
        assert!(policy.contains(&format!("{tag}-src 'sha256-{hash}'")), "{tag}");
    }
}

#[test]
fn how_an_attempt_stands_is_said_in_words() {
    let result = |result, stays| Welcome { attempt: ended(result), stays, ..welcome() };
    let failed = Outcome::Failed("wrong password for <Home>".into());
    let offline = Outcome::Joined { address: None, online: false };
    let table = [
        (result(Outcome::Trying, true), "Connecting to <bdi>Home</bdi>", "Stay here"),
        (result(Outcome::Trying, false), "leaves to join <bdi>Home</bdi>", "<bdi>acme-arm</bdi> comes back"),
        (result(failed, true), "Wrong password for &lt;Home&gt;", "card no"),
        (result(offline, true), "connected to <bdi>Home</bdi>", "It does not know yet who it is"),
        (done(), "connected to <bdi>Home</bdi>", "192.168.1.20. It is online. You can close this page."),
    ];
    for (welcome, title, text) in table {
        let mut portal = portal();
        for answer in
            [portal.answer(&get("/"), &welcome, &anything), portal.answer(&get("/state"), &welcome, &anything)]
        {
            let shown = body(&answer.response).replace("\\\"", "\"");
            assert!(shown.contains(title) && shown.contains(text), "{title}: {shown}");
        }
        let trying = title.contains("leaves") || title.contains("Connecting");
        assert_eq!(page(&welcome).contains("http-equiv=\"refresh\""), trying, "without script it looks again: {title}");
    }
    // Who waits and who is done sees no form; who is done may have it back.
    let again = body(&portal().answer(&get("/?again"), &done(), &anything).response);
    for (text, mood) in [
        (page(&welcome()), ""),
        (page(&result(Outcome::Trying, true)), "trying"),
        (page(&result(joined(), true)), ""),
        (page(&done()), "done"),
        (again, ""),
    ] {
        assert!(text.contains(&format!("<main class=\"{mood}\">")), "{mood}");
    }
    // What did not work is chosen again, so that only the password is to be typed.
    let failed = result(Outcome::Failed("no".into()), true);
    assert!(page(&failed).contains("value=\"x486f6d65\" id=\"n0\" checked"));
    let hidden = Attempt { number: 1, ssid: ssid("Not heard"), result: Outcome::Failed("no".into()) };
    let text = page(&Welcome { attempt: Some(hidden), ..welcome() });
    assert!(text.contains("id=\"o\" checked") && text.contains("value=\"Not heard\""));
}

#[test]
fn nothing_gets_onto_it_unescaped() {
    let evil = "\"'><script>alert(1)</script>&";
    let long = "'\"><img src=x onerror=a()>";
    let welcome = Welcome {
        manufacturer: evil.into(),
        model: evil.into(),
        hostname: evil.into(),
        agent_version: evil.into(),
        fragment_id: Some(evil.into()),
        networks: Rc::from([seen(long, 1, Security::Open), seen("\u{202e}txet", 1, Security::Open)]),
        complaints: Rc::from([evil.into()]),
        attempt: Some(Attempt { number: 1, ssid: ssid(long), result: Outcome::Failed(evil.into()) }),
        ..Welcome::default()
    };
    let site = Site { hotspot: evil.into(), ..portal().site };
    let mut portal = Portal::new(site, [7; 32]);
    let typed = format!("network=other&name={}&password=short", escaped(evil));
    let refused = post(&portal, "/join", &typed);
    for request in [get("/"), get(&format!("/?{evil}")), refused] {
        let shown = body(&portal.answer(&request, &welcome, &anything).response);
        assert_eq!(shown.matches("<script>").count(), 1, "only our own: {shown}");
        assert!(!shown.contains("<img") && !shown.contains("alert(1)<"), "{shown}");
    }
    let request = get(&format!("/{evil}\r\nSet-Cookie: x"));
    let answer = portal.answer(&request, &welcome, &anything).response;
    assert!(answer.headers.iter().all(|(_, value)| !value.contains("script") && !value.contains('\n')));
    // A state is JSON whatever is in it.
    let state = body(&portal.answer(&get("/state"), &welcome, &anything).response);
    let document = api::json::parse(state.as_bytes(), api::json::Limits::SMALL).unwrap();
    let networks = document.get("networks").and_then(|value| value.as_text().map(|text| text.into_owned())).unwrap();
    assert!(networks.contains("&#39;&quot;&gt;&lt;img") && !networks.contains("<img"), "{networks}");
}

#[test]
fn what_is_given() {
    let both = format!("{HOME}&password=correct+horse&credentials={}", escaped(CREDENTIALS));
    let only = format!("credentials={}", escaped(CREDENTIALS));
    let table: Vec<(&str, String, u16, &str, Vec<&str>)> = vec![
        // case                      fields                              status  shown                          visits
        (
            "chosen",
            format!("{HOME}&password=correct+horse"),
            200,
            "Connecting to",
            vec!["Portal Network Home correct horse"],
        ),
        ("open", "network=x436166c3a9&password=".into(), 200, "Connecting to", vec!["Portal Network Café -"]),
        (
            "typed",
            "network=other&name=Attic&password=12345678".into(),
            200,
            "Connecting to",
            vec!["Portal Network Attic 12345678 hidden"],
        ),
        (
            "typed, not chosen",
            "name=Attic&password=".into(),
            200,
            "Connecting to",
            vec!["Portal Network Attic - hidden"],
        ),
        (
            "chosen, and typed before",
            format!("{HOME}&name=Attic&password=12345678"),
            200,
            "",
            vec!["Portal Network Home 12345678"],
        ),
        ("any bytes", "network=xff00&password=".into(), 200, "", vec![r"Portal Network \xff\x00 -"]),
        (
            "identity",
            only,
            200,
            "The device has its credentials",
            vec!["Portal Identity https://fleet.example.com p-1"],
        ),
        (
            "both",
            both,
            200,
            "Connecting to",
            vec!["Portal Identity https://fleet.example.com p-1", "Portal Network Home correct horse"],
        ),
        ("nothing", "password=".into(), 422, "Choose a network", vec![]),
        ("no name", "network=other&name=&password=12345678".into(), 422, "Choose a network", vec![]),
        ("too long", format!("network=other&name={}", "x".repeat(33)), 422, "at most 32 bytes", vec![]),
        ("a short password", format!("{HOME}&password=1234567"), 422, "8 to 63 characters", vec![]),
        ("a password of other letters", format!("{HOME}&password=p%C3%A4sswort"), 422, "English keyboard", vec![]),
        (
            "a password of no letters",
            format!("{HOME}&password=%ff%fe%fd%fc%fb%fa%f9%f8"),
            422,
            "English keyboard",
            vec![],
        ),
        ("half a file", format!("{HOME}&credentials=%7B"), 422, "This is not the content", vec![]),
        (
            "without secret",
            "credentials=%7B%22cloud%22%3A%7B%7D%7D".into(),
            422,
            "cloud.app_address is missing",
            vec![],
        ),
        ("no button of ours", "network=xZZ&name=".into(), 422, "Choose a network", vec![]),
        ("an empty button", "network=x".into(), 422, "Choose a network", vec![]),
        ("broken", "a=%zz".into(), 400, "could not be read", vec![]),
    ];
    for (case, fields, status, shown, expected) in table {
        for script in [false, true] {
            let mut portal = portal();
            let mut request = post(&portal, "/join", &fields);
            if script {
                request.headers.retain(|(name, _)| name != "accept");
                request.headers.push(("accept".into(), "application/json".into()));
            }
            let answer = portal.answer(&request, &welcome(), &anything);
            let text = body(&answer.response);
            assert_eq!(answer.response.status, status, "{case}: {text}");
            assert!(text.contains(shown), "{case}: {text}");
            assert_eq!(visits(&answer), expected, "{case}");
            assert!(!text.contains("s3cret") && !text.contains("correct horse"), "{case}: a secret came back");
            let json = api::json::parse(text.as_bytes(), api::json::Limits::SMALL);
            assert_eq!(json.is_ok(), script, "{case}");
            assert_eq!(json.is_ok_and(|json| json.get("problem").is_some()), script && status != 200, "{case}");
        }
    }
}

#[test]
fn a_file_is_given_in_parts() {
    let mut portal = portal();
    let token = post(&portal, "/", "").body;
    let token = String::from_utf8(token).unwrap();
    let token = token.trim_start_matches("token=").trim_end_matches('&');
    let field =
        |name: &str, value: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    let file = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.json\"\r\nContent-Type: application/json\r\n\r\n{CREDENTIALS}\n\r\n"
    );
    let body = field("token", token)
        + &field("network", "other")
        + &field("name", "")
        + &field("password", "")
        + &field("credentials", "")
        + &file
        + "--b--\r\n";
    let request = asks("POST", "/join", &[("content-type", "multipart/form-data; boundary=b")], &body);
    let answer = portal.answer(&request, &welcome(), &anything);
    assert_eq!(visits(&answer), ["Portal Identity https://fleet.example.com p-1"]);
}

#[test]
fn forms_from_elsewhere_do_nothing() {
    let fields = format!("{HOME}&password=12345678");
    let good = post(&portal(), "/join", &fields);
    let with = |name: &str, value: &str| {
        let mut request = good.clone();
        request.headers.retain(|(known, _)| known != name);
        request.headers.push((name.into(), value.into()));
        request
    };
    let with_body = |body: String| Request { body: body.into_bytes(), ..good.clone() };
    let table = [
        ("ours", good.clone(), 200),
        ("a sheet that does not tell", with("origin", "null"), 200),
        ("another origin", with("origin", "http://evil.example.com"), 403),
        ("ours, but encrypted", with("origin", "https://10.42.0.1"), 403),
        ("another site", with("sec-fetch-site", "cross-site"), 403),
        ("no token", with_body(fields.clone()), 403),
        ("a wrong token", with_body(format!("token={}&{fields}", "0".repeat(32))), 403),
        ("the token of somebody else", Request { visitor: "10.42.0.99:1".parse().unwrap(), ..good.clone() }, 403),
        ("as text", with("content-type", "text/plain"), 400),
        ("no such form", Request { target: "/format-disk".into(), ..good.clone() }, 404),
    ];
    for (case, request, status) in table {
        let answer = portal().answer(&request, &welcome(), &anything);
        assert_eq!(answer.response.status, status, "{case}");
        assert_eq!(answer.visits.is_empty(), status != 200, "{case}");
    }
    let mut later = Portal::new(portal().site, [8; 32]);
    let answer = later.answer(&good, &welcome(), &anything);
    assert_eq!(answer.response.status, 403, "the token of an earlier opening");
    let text = body(&answer.response);
    assert!(text.contains("id=\"n0\" checked") && text.contains("send it again"), "what was chosen stays: {text}");
    assert!(!text.contains("12345678"), "what was secret does not");
}

#[test]
fn what_is_not_permitted_is_refused_in_words() {
    let refuse = |_: Door, visit: &Visit| match visit {
        Visit::Identity(_) => Err(Refused::IdentityStays),
        Visit::Network(_) | Visit::Leave => Err(Refused::Busy),
        _ => Ok(()),
    };
    let mut portal = portal();
    let both = format!("{HOME}&password=12345678&credentials={}", escaped(CREDENTIALS));
    for (path, fields, status, sentence) in [
        ("/join", both.as_str(), 409, "belongs to somebody already"),
        ("/join", "network=x486f6d65&password=12345678", 409, "is being tried"),
        ("/leave", "", 409, "is being tried"),
        ("/rescan", "", 303, ""),
    ] {
        let request = post(&portal, path, fields);
        let answer = portal.answer(&request, &welcome(), &refuse);
        assert_eq!(answer.response.status, status, "{path}");
        assert!(body(&answer.response).contains(sentence), "{path}");
        assert_eq!(answer.visits.is_empty(), status == 409, "{path}");
    }
}

#[test]
fn what_else_a_page_can_say() {
    let mut portal = portal();
    let failed = Welcome { attempt: ended(Outcome::Failed("no".into())), ..welcome() };
    for (path, welcome, status, expected) in [
        ("/touched", &welcome(), 204, &["Portal Touched"][..]),
        ("/rescan", &welcome(), 303, &["Portal Rescan"]),
        ("/leave", &welcome(), 200, &["Portal Leave"]),
        ("/seen", &welcome(), 204, &[]),
        ("/seen", &failed, 204, &["Portal SawResult"]),
    ] {
        let request = post(&portal, path, "");
        let answer = portal.answer(&request, welcome, &anything);
        assert_eq!(
            (answer.response.status, visits(&answer)),
            (status, expected.iter().map(ToString::to_string).collect()),
            "{path}"
        );
    }
}
