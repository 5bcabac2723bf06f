//! Visitors of every kind: what they ask, what they get, and what it means.

use std::rc::Rc;

use board::{
    doorway::{Request, Response, SocketAddr, SocketAddrV4},
    network::{Security, Seen, Ssid},
};

use super::*;
use crate::provisioning::{
    visit::Identity,
    welcome::{Attempt, IdentityDoor, Result as Outcome},
};

mod pages;
mod services;

const PHONE: &str = "10.42.0.23:51000";
const SAFARI: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15";

fn ssid(name: &str) -> Ssid {
    Ssid::new(name.as_bytes()).unwrap()
}

fn seen(name: &str, signal: u8, security: Security) -> Seen {
    Seen { ssid: ssid(name), signal, security, frequency_mhz: 2412, heard: None }
}

/// A device without identity that hears three networks.
fn welcome() -> Welcome {
    Welcome {
        manufacturer: "Acme".into(),
        model: "Arm 7".into(),
        hostname: "arm-7-0042".into(),
        agent_version: "1.2.3".into(),
        fragment_id: Some("f-1".into()),
        networks: Rc::from([
            seen("Home", 82, Security::Wpa2Wpa3),
            seen("Café", 40, Security::Open),
            seen("Campus", 20, Security::Enterprise),
        ]),
        stays: true,
        ..Welcome::default()
    }
}

fn ended(result: Outcome) -> Option<Attempt> {
    Some(Attempt { number: 1, ssid: ssid("Home"), result })
}

fn joined() -> Outcome {
    Outcome::Joined { address: Some("192.168.1.20".into()), online: true }
}

/// Joined, and it knows who it is.
fn done() -> Welcome {
    Welcome { attempt: ended(joined()), has_identity: true, identity: IdentityDoor::Shut, online: true, ..welcome() }
}

fn portal() -> Portal {
    let address: SocketAddrV4 = "10.42.0.1:80".parse().unwrap();
    Portal::new(Site { address, prefix: 24, hotspot: "acme-arm".into(), captive_api: None }, [7; 32])
}

/// A request as a browser sends it; `headers` come on top.
fn asks(method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Request {
    let mut all = vec![
        ("host".to_owned(), "10.42.0.1".to_owned()),
        ("user-agent".to_owned(), SAFARI.to_owned()),
        ("accept".to_owned(), "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8".to_owned()),
    ];
    for (name, value) in headers {
        all.retain(|(known, _)| known != name);
        all.push(((*name).to_owned(), (*value).to_owned()));
    }
    let visitor: SocketAddr = PHONE.parse().unwrap();
    Request { method: method.into(), target: target.into(), headers: all, body: body.into(), visitor }
}

fn get(target: &str) -> Request {
    asks("GET", target, &[], "")
}

/// A form as the page sends it, with its token.
fn post(portal: &Portal, path: &str, fields: &str) -> Request {
    let SocketAddr::V4(phone) = PHONE.parse().unwrap() else { unreachable!() };
    let token = portal.token(phone.ip().to_bits());
    let kind = [("content-type", "application/x-www-form-urlencoded"), ("origin", "http://10.42.0.1")];
    asks("POST", path, &kind, &format!("token={}&{fields}", token.expose()))
}

/// Everything is permitted.
fn anything(_: Door, _: &Visit) -> Result<(), Refused> {
    Ok(())
}

fn body(response: &Response) -> String {
    String::from_utf8(response.body.to_vec()).unwrap()
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
}

fn visits(answer: &Answer) -> Vec<String> {
    answer
        .visits
        .iter()
        .map(|(door, visit)| match visit {
            Visit::Network(given) => {
                let psk = given.psk.as_ref().map_or("-", |psk| psk.expose());
                format!("{door:?} Network {} {psk}{}", given.ssid, if given.hidden { " hidden" } else { "" })
            }
            Visit::Identity(Identity { app_address, part_id, .. }) => {
                format!("{door:?} Identity {app_address} {part_id}")
            }
            other => format!("{door:?} {other:?}"),
        })
        .collect()
}

const SHEET: &str = "302 http://10.42.0.1/";

/// Status, and what shows which answer it was.
fn gist(response: &Response) -> String {
    let what = header(response, "Location")
        .map_or_else(|| body(response).chars().take(60).collect::<String>().replace('\n', "\\n"), str::to_owned);
    format!("{} {what}", response.status).trim_end().to_owned()
}

#[test]
fn the_sheet_opens_before_success_and_closes_after_it() {
    const APPLE: &str = "CaptiveNetworkSupport-481.100.3 wispr";
    const SUCCESS: &str = "200 <HTML><HEAD><TITLE>Success</TITLE></HEAD><";
    const NM: &str = "200 NetworkManager is online\\n";
    let table = [
        // who                        user agent   host                           path                              after success
        ("iOS and macOS", APPLE, "captive.apple.com", "/hotspot-detect.html", SUCCESS),
        ("iOS 9", APPLE, "www.apple.com", "/library/test/success.html", SUCCESS),
        ("iOS, a path by chance", APPLE, "www.airport.us", "/kZ8.html", SUCCESS),
        ("iOS, another host", APPLE, "apple.com", "/", SUCCESS),
        ("the sheet itself", SAFARI, "captive.apple.com", "/hotspot-detect.html", SUCCESS),
        ("the sheet, by the host alone", SAFARI, "captive.apple.com", "/", SUCCESS),
        ("Android", "Dalvik/2.1.0", "connectivitycheck.gstatic.com", "/generate_204", "204"),
        ("Android, as a browser", "Mozilla/5.0 (X11; Linux x86_64)", "www.google.com", "/gen_204", "204"),
        ("Android of another maker", "Dalvik/2.1.0", "connect.rom.miui.com", "/generate_204", "204"),
        ("ChromeOS", "Chrome", "www.gstatic.com", "/generate_204?x", "204"),
        ("Windows 11", "Microsoft NCSI", "www.msftconnecttest.com", "/connecttest.txt", "200 Microsoft Connect Test"),
        (
            "Windows by IPv6",
            "Microsoft NCSI",
            "ipv6.msftconnecttest.com",
            "/connecttest.txt",
            "200 Microsoft Connect Test",
        ),
        ("Windows 7", "Microsoft NCSI", "www.msftncsi.com", "/ncsi.txt", "200 Microsoft NCSI"),
        ("Windows, its browser", "Edg", "www.msftconnecttest.com", "/redirect", SHEET),
        ("Firefox", "Firefox", "detectportal.firefox.com", "/success.txt?ipv4", "200 success\\n"),
        (
            "Firefox",
            "Firefox",
            "detectportal.firefox.com",
            "/canonical.html",
            "200 <meta http-equiv=\"refresh\" content=\"0;",
        ),
        ("GNOME", "", "nmcheck.gnome.org", "/check_network_status.txt", NM),
        ("Debian", "", "network-test.debian.org", "/nm", NM),
        ("Arch", "", "ping.archlinux.org", "/nm-check.txt", NM),
        ("openSUSE", "", "conncheck.opensuse.org", "/", NM),
        ("Fedora", "", "fedoraproject.org", "/static/hotspot.txt", "200 OK"),
        ("Ubuntu", "", "connectivity-check.ubuntu.com.", "/", "204"),
        ("elementary", "", "capnet.elementary.io", "/", "204"),
        ("Pop!_OS", "", "nm-check.system76.com", "/", NM),
        ("KDE", "", "networkcheck.kde.org", "/", "200 OK\\n"),
        (
            "Kindle",
            "",
            "spectrum.s3.amazonaws.com",
            "/kindle-wifi/wifistub.html",
            "200 <!DOCTYPE html><html><head><title>Kindle",
        ),
        ("PlayStation", "", "ena.net.playstation.net", "/netstart/ps4", "204"),
        ("one that nobody knows", "new", "probe.example.com", "/any", SHEET),
    ];
    for (who, agent, host, path, after) in table {
        let mut portal = portal();
        for (target, host) in [(path.to_owned(), host), (format!("http://{host}{path}"), "wrong.example.com")] {
            let request = asks("GET", &target, &[("host", host), ("user-agent", agent)], "");
            let mut gist_of = |welcome| {
                let answer = portal.answer(&request, &welcome, &anything);
                assert_eq!(visits(&answer), Vec::<String>::new(), "{who}: a system is no visitor");
                assert_eq!(header(&answer.response, "Cache-Control"), Some("no-store"), "{who}");
                gist(&answer.response)
            };
            assert_eq!(gist_of(welcome()), SHEET, "{who}");
            let failed = ended(Outcome::Failed("wrong password for Home".into()));
            assert_eq!(gist_of(Welcome { attempt: failed, ..welcome() }), SHEET, "{who}, after a failure");
            let nobody = Welcome { attempt: ended(joined()), online: true, ..welcome() };
            assert_eq!(gist_of(nobody), SHEET, "{who}, joined, and it does not know who it is");
            let online = Welcome { attempt: None, ..done() };
            assert_eq!(gist_of(online), SHEET, "{who}, opened by hand on a device that is online");
            assert!(gist_of(done()).starts_with(after), "{who}: {}", gist_of(done()));
        }
    }
    for probe in probes::all() {
        let known = |maker: &str| probe.maker.contains(maker) || maker.contains(probe.maker);
        let is_named = table.iter().any(|(who, ..)| who.split([' ', ',']).next().is_some_and(known));
        assert!(is_named || probe.maker == "Apple", "{} has a row and no test", probe.maker);
    }
}

#[test]
fn who_is_a_visitor_and_when() {
    let mut portal = portal();
    let page = welcome();
    let mut visits_of = |request: &Request, welcome: &Welcome| visits(&portal.answer(request, welcome, &anything));
    let none = Vec::<String>::new();
    for agent in ["CaptiveNetworkSupport-481 wispr", "Microsoft NCSI", "Dalvik/2.1.0", "curl/8.0", ""] {
        assert_eq!(visits_of(&asks("GET", "/", &[("user-agent", agent)], ""), &page), none, "{agent}");
    }
    assert_eq!(visits_of(&asks("GET", "/", &[("accept", "*/*")], ""), &page), none, "no browser shows a page so");
    assert_eq!(visits_of(&get("/state"), &page), none, "the page looks by itself");
    assert_eq!(visits_of(&get("/"), &page), ["Portal Came"]);
    assert_eq!(visits_of(&get("/"), &page), none, "once per visitor");
    let other = Request { visitor: "10.42.0.24:1".parse().unwrap(), ..get("/") };
    assert_eq!(visits_of(&other, &page), ["Portal Came"]);
    let failed = Welcome { attempt: ended(Outcome::Failed("no".into())), ..page.clone() };
    assert_eq!(visits_of(&get("/state"), &failed), none, "nobody may be looking");
    assert_eq!(visits_of(&get("/"), &failed), ["Portal SawResult"]);
    let trying = Welcome { attempt: ended(Outcome::Trying), ..page.clone() };
    assert_eq!(visits_of(&get("/"), &trying), none);
    // Visitors who are remembered are bounded; the first may be counted again.
    for number in 0..CAME_MAX {
        let visitor = format!("10.42.0.{}:1", 100 + number).parse().unwrap();
        assert_eq!(visits_of(&Request { visitor, ..get("/") }, &page), ["Portal Came"]);
    }
    assert_eq!(visits_of(&get("/"), &page), ["Portal Came"]);
}

#[test]
fn who_comes_another_way_is_not_let_in() {
    let mut portal = portal();
    for (visitor, status) in [
        ("10.42.0.2:1", 200),
        ("10.42.1.2:1", 403),
        ("192.168.1.5:1", 403),
        ("127.0.0.1:1", 403),
        ("[::1]:1", 403),
        ("[fe80::1]:1", 403),
    ] {
        for target in ["/", "/state", "/a.provisioning.v1.ProvisioningService/GetNetworkList"] {
            let request = Request { visitor: visitor.parse().unwrap(), ..get(target) };
            let answer = portal.answer(&request, &welcome(), &anything);
            let refused = answer.response.status == 403;
            assert_eq!(refused, status == 403, "{visitor} {target}");
        }
    }
}

#[test]
fn every_other_name_is_sent_to_ours() {
    let mut portal = portal();
    let table = [
        ("10.42.0.1", "/", "200"),
        ("10.42.0.1:80", "/?done", "200"),
        ("10.42.0.1.", "/", "200"),
        ("10.42.0.2", "/", SHEET),
        ("evil.example.com", "/", SHEET),
        ("robot.setup", "/", SHEET),
        ("10.42.0.1.evil.example.com", "/", SHEET),
        ("", "/", SHEET),
        ("10.42.0.1", "/any/page", SHEET),
        ("10.42.0.1", "/captive-portal/api", SHEET),
        ("10.42.0.1", "/join", SHEET),
        ("x", "http://10.42.0.1/", "200"),
        ("10.42.0.1", "http://evil.example.com/", SHEET),
        ("10.42.0.1", "//evil.example.com/", SHEET),
    ];
    for (host, target, expected) in table {
        let request = asks("GET", target, &[("host", host)], "");
        let response = portal.answer(&request, &welcome(), &anything).response;
        let gist = gist(&response);
        assert!(
            gist == expected || (expected == "200" && gist.starts_with("200 <!doctype")),
            "{host} {target}: {gist}"
        );
    }
    let elsewhere = asks("POST", "/join", &[("host", "evil.example.com")], "network=other&name=x");
    assert_eq!(portal.answer(&elsewhere, &welcome(), &anything).response.status, 421);
    for (method, status) in [("PUT", 405), ("DELETE", 405), ("OPTIONS", 405), ("HEAD", 200), ("get", 405)] {
        assert_eq!(
            portal.answer(&asks(method, "/", &[], ""), &welcome(), &anything).response.status,
            status,
            "{method}"
        );
    }
    let image = asks("GET", "/favicon.ico", &[("accept", "image/*")], "");
    assert_eq!(portal.answer(&image, &welcome(), &anything).response.status, 404);
}

#[test]
fn the_captive_api_is_there_when_it_is_wanted() {
    let url = "https://Portal.acme.example:443/api?v=1";
    let mut portal = Portal::new(Site { captive_api: Some(url.into()), ..portal().site }, [0; 32]);
    let asked = |host: &str, path: &str| {
        let mut request = asks("GET", path, &[("accept", "application/captive+json")], "");
        request.headers.retain(|(name, _)| name != "host");
        request.headers.push(("host".into(), host.into()));
        request
    };
    for (host, path) in [("portal.acme.example", "/other"), ("elsewhere.example", "/api")] {
        let other = portal.answer(&asked(host, path), &welcome(), &anything).response;
        assert_eq!(other.status, 302, "{host}{path}");
    }
    let request = asked("portal.acme.example", "/api?v=1");
    let before = portal.answer(&request, &welcome(), &anything).response;
    assert_eq!(body(&before), r#"{"captive":true,"user-portal-url":"http://10.42.0.1/"}"#);
    assert_eq!(header(&before, "Content-Type"), Some("application/captive+json"));
    let after = portal.answer(&request, &done(), &anything).response;
    assert_eq!(body(&after), r#"{"captive":false}"#);
}
