//! What phones and computers ask to find out whether a network leads anywhere: one row for each question.
//!
//! Before the device is set up every question is answered by a redirect to the page, which is what opens the sheet.
//! Afterwards each gets the answer that its maker expects, so that the sheet says "Done" or closes. A question nobody
//! knows yet is redirected like any other address, so that a new one opens the sheet, too; it only does not close it.

use std::borrow::Cow;

use board::doorway::Response;

/// Which host a row is about.
#[derive(Clone, Copy)]
enum Host {
    Any,
    Is(&'static str),
}

/// The answer that means: there is nothing to sign in to.
#[derive(Clone, Copy)]
enum Free {
    /// 204
    Nothing,
    Text(&'static str),
    Html(&'static str),
    /// No answer helps: a browser was sent there by its system to see the page.
    Never,
}

/// One question.
#[derive(Clone, Copy)]
pub(super) struct Probe {
    /// Who asks.
    #[cfg_attr(not(test), allow(dead_code, reason = "the rows of the tests are named by it"))]
    pub(super) maker: &'static str,
    host: Host,
    path: &'static str,
    free: Free,
}

const fn row(maker: &'static str, host: Host, path: &'static str, free: Free) -> Probe {
    Probe { maker, host, path, free }
}

const APPLE: Free = Free::Html("<HTML><HEAD><TITLE>Success</TITLE></HEAD><BODY>Success</BODY></HTML>");
const NETWORK_MANAGER: Free = Free::Text("NetworkManager is online\n");

/// Paths that are nobody else's are known at every host: makers add mirrors. `/` belongs to one host each.
const PROBES: [Probe; 21] = [
    row("Apple", Host::Any, "/hotspot-detect.html", APPLE),
    row("Apple", Host::Any, "/library/test/success.html", APPLE),
    row("Apple", Host::Is("captive.apple.com"), "/", APPLE),
    row("Android, ChromeOS, Chromium, Edge", Host::Any, "/generate_204", Free::Nothing),
    row("Android, older", Host::Any, "/gen_204", Free::Nothing),
    row("Windows 10, 11", Host::Any, "/connecttest.txt", Free::Text("Microsoft Connect Test")),
    row("Windows 7, 8", Host::Any, "/ncsi.txt", Free::Text("Microsoft NCSI")),
    row("Windows, the browser it opens", Host::Is("www.msftconnecttest.com"), "/redirect", Free::Never),
    row("Firefox", Host::Any, "/success.txt", Free::Text("success\n")),
    row(
        "Firefox",
        Host::Any,
        "/canonical.html",
        Free::Html(r#"<meta http-equiv="refresh" content="0;url=https://support.mozilla.org/kb/captive-portal"/>"#),
    ),
    row("GNOME", Host::Any, "/check_network_status.txt", NETWORK_MANAGER),
    row("Debian", Host::Is("network-test.debian.org"), "/nm", NETWORK_MANAGER),
    row("Arch", Host::Any, "/nm-check.txt", NETWORK_MANAGER),
    row("openSUSE", Host::Is("conncheck.opensuse.org"), "/", NETWORK_MANAGER),
    row("Fedora", Host::Any, "/static/hotspot.txt", Free::Text("OK")),
    row("Ubuntu", Host::Is("connectivity-check.ubuntu.com"), "/", Free::Nothing),
    row("elementary", Host::Is("capnet.elementary.io"), "/", Free::Nothing),
    row("Pop!_OS", Host::Is("nm-check.system76.com"), "/", NETWORK_MANAGER),
    row("KDE", Host::Is("networkcheck.kde.org"), "/", Free::Text("OK\n")),
    row(
        "Kindle",
        Host::Any,
        "/kindle-wifi/wifistub.html",
        Free::Html(
            "<!DOCTYPE html><html><head><title>Kindle Reachability Probe Page</title></head><body>81ce4465-7167-4dcb-835b-dcc9e44c112a</body></html>",
        ),
    ),
    row("PlayStation", Host::Is("ena.net.playstation.net"), "/netstart/ps4", Free::Nothing),
];

/// How systems introduce themselves while no person is looking.
const SYSTEMS: [&str; 5] = ["captivenetworksupport", "microsoft ncsi", "dalvik/", "networkmanager", "curl/"];

/// Apple asks changing hosts for changing paths under this name.
const APPLE_SYSTEM: &str = "captivenetworksupport";

/// Whether this is a system on its own, which is no visitor.
pub(super) fn is_system(user_agent: &str) -> bool {
    let agent = user_agent.to_ascii_lowercase();
    agent.is_empty() || SYSTEMS.iter().any(|system| agent.starts_with(system))
}

/// The row for this question, if it is one. `ours`: the host is the device itself.
pub(super) fn find(host: &str, path: &str, user_agent: &str, ours: bool) -> Option<Probe> {
    let is = |row: &&Probe| match row.host {
        Host::Any => row.path == path,
        Host::Is(name) => name == host && row.path == path,
    };
    let apple = !ours && user_agent.to_ascii_lowercase().starts_with(APPLE_SYSTEM);
    PROBES.iter().find(is).or_else(|| PROBES.first().filter(|_| apple)).copied()
}

impl Probe {
    /// The answer that closes the sheet; `None` when there is none.
    pub(super) fn free(self) -> Option<Response> {
        let (status, kind, body) = match self.free {
            Free::Nothing => (204, "", ""),
            Free::Text(text) => (200, "text/plain", text),
            Free::Html(text) => (200, "text/html", text),
            Free::Never => return None,
        };
        // NetworkManager believes this header, too, whatever text its distribution expects.
        let mut headers =
            vec![("Cache-Control", Cow::Borrowed("no-store")), ("X-NetworkManager-Status", Cow::Borrowed("online"))];
        if !kind.is_empty() {
            headers.push(("Content-Type", Cow::Borrowed(kind)));
        }
        Some(Response { status, headers, body: Cow::Borrowed(body.as_bytes()) })
    }
}

#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = Probe> {
    PROBES.into_iter()
}
