//! A person with a phone at a board's hotspot: the board's second radio, with curl for a browser.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{
    board::RadioBoard,
    probes::{PROBES, Probe},
};
use crate::{lab::board::Target, real::Trouble};

/// Where a phone finds the page.
const PAGE: &str = "http://10.42.0.1";
/// How people's browsers introduce themselves.
const BROWSER: &str =
    "curl -sS -m 20 -b /root/jar -c /root/jar -A 'Mozilla/5.0 (Linux; Android 14) Mobile' -H 'Accept: text/html'";

/// An answer of the page.
pub(super) struct Answer {
    /// The status of HTTP.
    pub(super) status: String,
    /// What a browser shows.
    pub(super) body: String,
}

/// Somebody with a phone.
pub(super) struct Visitor<'a> {
    board: &'a RadioBoard,
    hotspot: String,
    password: String,
}

impl<'a> Visitor<'a> {
    /// Who reads the label: `platform-agent hotspot`, once the hotspot is open.
    pub(super) fn waits(board: &'a RadioBoard) -> Result<Visitor<'a>, Trouble> {
        until(board, "an open hotspot", || is_open(board).then_some(()))?;
        let said = board.run("platform-agent hotspot")?;
        let word =
            |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(|word| word.trim().to_owned());
        match (word("hotspot"), word("password")) {
            (Some(hotspot), Some(password)) => Ok(Visitor { board, hotspot, password }),
            _ => Err(Trouble(format!("no label: {said}"))),
        }
    }

    /// The name of the hotspot.
    pub(super) fn hotspot(&self) -> &str {
        &self.hotspot
    }

    /// Its password.
    pub(super) fn password(&self) -> &str {
        &self.password
    }

    /// Joins the hotspot, with an address by DHCP: what DHCP said.
    pub(super) fn joins(&self) -> Result<String, Trouble> {
        until(self.board, "a phone on the hotspot", || self.joins_once().ok())
    }

    /// The same without patience: an error where the hotspot is not there now.
    pub(super) fn joins_once(&self) -> Result<String, Trouble> {
        self.board.run(&format!("timeout 90 lab-phone join '{}' '{}'", self.hotspot, self.password))
    }

    /// What phones and computers ask on their own: every question is redirected to the page, without a body.
    pub(super) fn is_sent_to_the_page(&self) -> Result<(), Trouble> {
        let wanted = format!("302 {PAGE}/");
        self.asks(|_, said| said == wanted)
    }

    /// The same after success: each is told what closes its sheet.
    pub(super) fn is_done(&self) -> Result<(), Trouble> {
        self.asks(|probe, said| said.starts_with(probe.done))
    }

    /// All questions; each answer is status, where it leads and body, without the blanks between them where there is none.
    fn asks(&self, is_wanted: impl Fn(&Probe, &str) -> bool) -> Result<(), Trouble> {
        const ANSWERS: &str = "/root/answers";
        let ask = |(number, Probe { agent, url, .. }): (usize, &Probe)| {
            let show = "%{http_code} %{redirect_url}\\n";
            format!("-sS -m 5 -A '{agent}' -o {ANSWERS}/{number} -w '{show}' '{url}'")
        };
        let asked = PROBES.iter().enumerate().map(ask).collect::<Vec<_>>().join(" --next ");
        let last = PROBES.len() - 1;
        let said = self.board.run(&format!(
            "rm -rf {ANSWERS}; mkdir {ANSWERS}; lab-phone run curl {asked}; for number in $(seq 0 {last}); do \
             head -c 120 {ANSWERS}/$number 2>/dev/null | tr '\\r\\n' '  '; echo; done; echo end"
        ))?;
        let lines: Vec<&str> = said.lines().collect();
        for (number, probe) in PROBES.iter().enumerate() {
            let part = |at: usize| lines.get(at).map_or("", |line| line.trim());
            let answer = format!("{} {}", part(number), part(PROBES.len() + number));
            if !is_wanted(probe, answer.trim_end()) {
                return Err(Trouble(format!("{} was answered {answer:?}\n{said}", probe.who)));
            }
        }
        Ok(())
    }

    /// Opens the page.
    pub(super) fn page(&self) -> Result<String, Trouble> {
        Ok(self.browses("/", "")?.body)
    }

    /// Looks at the page until it shows this.
    pub(super) fn until_shown(&self, words: &str) -> Result<String, Trouble> {
        let mut last = String::new();
        let shown = until(self.board, words, || {
            last = self.page().ok()?;
            last.contains(words).then(|| last.clone())
        });
        shown.map_err(|trouble| Trouble(format!("{trouble}\nthe page was {last}")))
    }

    /// Looks at the page, and asks it to look again now and then, until this network can be chosen.
    pub(super) fn until_listed(&self, ssid: &str) -> Result<String, Trouble> {
        let mut looks = 0;
        until(self.board, ssid, || {
            let page = self.page().ok()?;
            if page.contains(&choice(ssid)) {
                return Some(page);
            }
            if looks % 8 == 0 {
                self.sends("/rescan", "").ok()?;
            }
            looks += 1;
            None
        })
    }

    /// Looks at the page until there is none any more.
    pub(super) fn until_lost(&self) -> Result<(), Trouble> {
        let look = format!("lab-phone run {BROWSER} -m 3 -o /dev/null {PAGE}/state");
        until(self.board, "the end of the hotspot", || self.board.run(&look).is_err().then_some(()))
    }

    /// Sends a form as the page in front of it would: every field is a word of curl, such as `-F name=value`.
    pub(super) fn sends(&self, path: &str, fields: &str) -> Result<Answer, Trouble> {
        let words = self.form(fields)?;
        self.browses(path, &words)
    }

    /// The same, and the board's clock when the button was pressed, in seconds since 1970.
    pub(super) fn sends_at(&self, path: &str, fields: &str) -> Result<(f64, Answer), Trouble> {
        let line = request(path, &self.form(fields)?);
        let said = self.board.run(&format!("date +%s.%N; {line}"))?;
        let (clock, said) = said.split_once('\n').unwrap_or((&said, ""));
        let pressed = clock.parse().map_err(|error| Trouble::of("the board's clock", error))?;
        Ok((pressed, answer(said)))
    }

    /// The words of curl for a form of the page as it is now.
    fn form(&self, fields: &str) -> Result<String, Trouble> {
        let page = self.page()?;
        let token = page.split_once("name=\"token\" value=\"").and_then(|(_, rest)| rest.split('"').next());
        let token = token.ok_or_else(|| Trouble(format!("a page without a token: {page}")))?;
        let kind = if fields.contains("-F ") { "-F" } else { "--data-urlencode" };
        Ok(format!("-H 'Origin: {PAGE}' {kind} token={token} {fields}"))
    }

    /// A request of a browser with these words of curl.
    pub(super) fn browses(&self, path: &str, words: &str) -> Result<Answer, Trouble> {
        Ok(answer(&self.board.run(&request(path, words))?))
    }
}

/// A command of the board: a browser's request, with the status behind what it shows.
fn request(path: &str, words: &str) -> String {
    format!("lab-phone run {BROWSER} -w '\\n%{{http_code}}' {words} {PAGE}{path}")
}

/// What such a command printed.
fn answer(said: &str) -> Answer {
    let (body, status) = said.rsplit_once('\n').unwrap_or(("", said));
    // What is not for eyes would bury everything else where an answer is not the wanted one.
    let seen = body.split_once("<main").and_then(|(_, rest)| rest.split("<script>").next()).unwrap_or(body);
    Answer { status: status.to_owned(), body: seen.to_owned() }
}

/// The value that the page has for a network of this name.
pub(super) fn choice(ssid: &str) -> String {
    ssid.bytes().fold("x".to_owned(), |value, byte| format!("{value}{byte:02x}"))
}

/// What the agent says of its doors.
pub(super) fn doors(board: &RadioBoard) -> Option<Value> {
    // It ends with 3 where something is worth a warning.
    let (_, said) = Target::ask(board, "platform-agent status --json").ok()?;
    Some(serde_json::from_str::<Value>(&said).ok()?["status"]["provisioning"].take())
}

fn is_open(board: &RadioBoard) -> bool {
    doors(board).is_some_and(|doors| doors["hotspot"] == "DOOR_OPEN")
}

/// How long something on a board is waited for. All of it is emulated, and this machine may be busy with other things.
const PATIENCE: Duration = Duration::from_secs(240);

/// Waits, and on giving up tells what NetworkManager and the agent say. Asks once a second: asking is emulated too, and
/// would be most of what the board does.
pub(super) fn until<T>(board: &RadioBoard, what: &str, mut ask: impl FnMut() -> Option<T>) -> Result<T, Trouble> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    let network = board
        .run(
            "nmcli device; nmcli --fields NAME,DEVICE,AUTOCONNECT,AUTOCONNECT-PRIORITY connection; ip -br address; ip route; nmcli device wifi list --rescan no; \
             journalctl -b -u NetworkManager --no-pager | grep -E 'Activation|connection-|policy|fail|secrets' | tail -40",
        )
        .unwrap_or_default();
    Err(Trouble(format!("gave up waiting for {what}\n{network}\n{}", board.journal())))
}
