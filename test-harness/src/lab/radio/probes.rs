//! What phones and computers ask on their own, and what makes each of them open its sheet, and close it.

/// A question: who asks, by which name, for what, and the beginning of the answer that says there is no captive portal.
pub(super) struct Probe {
    pub(super) who: &'static str,
    pub(super) agent: &'static str,
    pub(super) url: &'static str,
    pub(super) done: &'static str,
}

const fn probe(who: &'static str, agent: &'static str, url: &'static str, done: &'static str) -> Probe {
    Probe { who, agent, url, done }
}

const WISPR: &str = "CaptiveNetworkSupport-481.100.3 wispr";
const SUCCESS: &str = "200 <HTML><HEAD><TITLE>Success</TITLE></HEAD><BODY>Success</BODY></HTML>";
const DALVIK: &str = "Dalvik/2.1.0 (Linux; U; Android 14)";
const CHROME: &str = "Mozilla/5.0 (X11; CrOS x86_64) Chrome/130.0.0.0";
const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0";
const MANAGER: &str = "NetworkManager/1.48";
const IS_ONLINE: &str = "200 NetworkManager is online";

/// One of each, by the names that they resolve.
pub(super) const PROBES: [Probe; 19] = [
    probe("ios", WISPR, "http://captive.apple.com/hotspot-detect.html", SUCCESS),
    probe("ios-9", WISPR, "http://www.apple.com/library/test/success.html", SUCCESS),
    probe("ios-by-chance", WISPR, "http://www.airport.us/kZ8.html", SUCCESS),
    probe("android", DALVIK, "http://connectivitycheck.gstatic.com/generate_204", "204"),
    probe("android-older", DALVIK, "http://www.google.com/gen_204", "204"),
    probe("android-of-another", DALVIK, "http://connect.rom.miui.com/generate_204", "204"),
    probe("chromeos", CHROME, "http://www.gstatic.com/generate_204", "204"),
    probe(
        "windows-11",
        "Microsoft NCSI",
        "http://www.msftconnecttest.com/connecttest.txt",
        "200 Microsoft Connect Test",
    ),
    probe("windows-7", "Microsoft NCSI", "http://www.msftncsi.com/ncsi.txt", "200 Microsoft NCSI"),
    probe("firefox", FIREFOX, "http://detectportal.firefox.com/success.txt?ipv4", "200 success"),
    probe(
        "firefox-page",
        FIREFOX,
        "http://detectportal.firefox.com/canonical.html",
        "200 <meta http-equiv=\"refresh\"",
    ),
    probe("gnome", MANAGER, "http://nmcheck.gnome.org/check_network_status.txt", IS_ONLINE),
    probe("debian", MANAGER, "http://network-test.debian.org/nm", IS_ONLINE),
    probe("arch", MANAGER, "http://ping.archlinux.org/nm-check.txt", IS_ONLINE),
    probe("fedora", MANAGER, "http://fedoraproject.org/static/hotspot.txt", "200 OK"),
    probe("ubuntu", MANAGER, "http://connectivity-check.ubuntu.com/", "204"),
    probe("kde", "Mozilla/5.0 KDE", "http://networkcheck.kde.org/", "200 OK"),
    probe(
        "kindle",
        "Kindle",
        "http://spectrum.s3.amazonaws.com/kindle-wifi/wifistub.html",
        "200 <!DOCTYPE html><html><head><title>Kindle",
    ),
    probe("playstation", "PlayStation", "http://ena.net.playstation.net/netstart/ps4", "204"),
];
