//! The story of a phone that shares its own connection: a device without any other network is online by it.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

use serde_json::json;

use super::{
    bluetooth::{offered, password},
    board::RadioBoard,
    doors::{secs, unsaid},
    visitor::{doors, until},
};
use crate::{
    lab::{
        board::Target,
        site::FIRST,
        stories::{Stage, ensure},
    },
    real::Trouble,
};

/// A phone whose owner has switched tethering on.
struct Phone {
    child: Child,
    line: Option<ChildStdin>,
    said: Arc<Mutex<String>>,
}

impl Phone {
    /// Finds the board and pairs; with the label's password its app unlocks that first. `port` is where the fleet server
    /// listens.
    fn comes(board: &RadioBoard, password: &str, port: &str) -> Result<Phone, Trouble> {
        let mut command = board.phone_script("nap.py");
        command.args([password, port]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Trouble::of("python3", error))?;
        let said = Arc::new(Mutex::new(String::new()));
        let line = child.stdin.take();
        let outputs = [child.stdout.take().map(as_reader), child.stderr.take().map(as_reader)];
        for output in outputs.into_iter().flatten() {
            let said = Arc::clone(&said);
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if let Ok(mut said) = said.lock() {
                        said.push_str(&line);
                        said.push('\n');
                    }
                }
            });
        }
        Ok(Phone { child, line, said })
    }

    /// What becomes of the phone, as `nap.py` knows it.
    fn does(&mut self, word: &str) -> Result<(), Trouble> {
        let line = self.line.as_mut().ok_or_else(|| Trouble("nobody holds the phone".to_owned()))?;
        writeln!(line, "{word}").map_err(|error| Trouble::of("the phone", error))
    }

    fn said(&self) -> String {
        self.said.lock().map(|said| said.clone()).unwrap_or_default()
    }

    /// Waits until it has said this; what it said before that is forgotten.
    fn says(&self, board: &RadioBoard, words: &str) -> Result<(), Trouble> {
        let heard = until(board, words, || {
            let said = self.said();
            [words, "not paired", "Traceback"].iter().any(|end| said.contains(end)).then_some(said)
        });
        let said = heard.map_err(|trouble| Trouble(format!("{trouble}\nthe phone said {}", self.said())))?;
        let (_, rest) =
            said.split_once(words).ok_or_else(|| Trouble(format!("not {words:?}, but {said}\n{}", board.journal())))?;
        if let Ok(mut all) = self.said.lock() {
            let from = all.len().min(said.len()) - rest.len();
            all.drain(..from);
        }
        Ok(())
    }
}

impl Drop for Phone {
    fn drop(&mut self) {
        self.line = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn as_reader(output: impl std::io::Read + Send + 'static) -> Box<dyn std::io::Read + Send> {
    Box::new(output)
}

/// A device that has an identity and no network at all. A phone that nobody let in is refused; one whose app unlocked pairing is found
/// among the devices near, pairs, and its connection is used: the device reports through it, and its doors close. It goes, and the
/// doors open; it is back, and the device asks it again, by itself or because it calls.
pub(super) fn tethering(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let site = stage.site()?;
    let board = stage.small_board()?;
    board.lead_to(&site.fleet.url)?;
    board.plug_in_both_bluetooths()?;
    // Who unlocked pairing is gone at once, or the doors would wait for five minutes.
    let network = json!({
        "offline_before_starting_hotspot_minutes": 0, "disable_wifi_provisioning": true, "user_idle_minutes": 0
    });
    site.make_with(&board, network)?;
    site.introduce(&board)?;
    site.install_without_identity(&board)?;
    offered(&board)?;
    let password = password(&board)?;
    let port = site.fleet.url.rsplit(':').next().unwrap_or_default().trim_end_matches('/').to_owned();
    stage.saw("a device without a network: Bluetooth is open");

    let locked = Phone::comes(&board, "", &port)?;
    let refused = until(&board, "a pairing that is refused", || {
        let said = locked.said();
        (said.contains("not paired") || said.contains("\npaired")).then_some(said)
    })?;
    ensure(refused.contains("not paired"), || format!("let in: {refused}"))?;
    drop(locked);
    stage.saw("a phone that nobody let in: not paired");

    let begin = Instant::now();
    let mut phone = Phone::comes(&board, &password, &port)?;
    for words in ["unlocks: taken", "paired", "shares its connection", "gave the board an address"] {
        phone.says(&board, words)?;
        stage.saw(format!("the phone: {words} ({:.1} s)", secs(begin)));
    }
    site.until(&board, "a report through the phone", |status| status.agent_version == FIRST)?;
    let told = board.run("ip -4 -br address; ip route; nmcli --terse device")?;
    ensure(told.contains("192.168.44.2/24") && told.contains("default via 192.168.44.1"), || told.clone())?;
    stage.saw(format!("a report through it after {:.1} s", secs(begin)));
    // Its machine server is not waited for: the air is a program here, and takes minutes for so many bytes.
    until(&board, "closed doors", || doors(&board).filter(|doors| doors["bluetooth"] == "DOOR_CLOSED").map(drop))?;
    let still = board.run("ip -4 -br address show bnep0; nmcli --terse --fields DEVICE,STATE device")?;
    ensure(still.contains("192.168.44.2/24"), || format!("the connection went with the doors: {still}"))?;
    stage.saw("the doors are closed; the phone's connection stays");

    let daemon = board.run("systemctl show bluetooth --property MainPID")?;
    board.run(&format!("setsid stdbuf -oL btmon >{HEARD} 2>&1 </dev/null &"))?;
    goes(stage, &board, &mut phone)?;
    let begin = Instant::now();
    phone.does("come")?;
    phone.says(&board, "shares its connection")?;
    back(&board)?;
    stage.saw(format!("it is back and waits: asked and used again after {:.1} s, without pairing", secs(begin)));

    let before = missed(&board)?;
    goes(stage, &board, &mut phone)?;
    let begin = Instant::now();
    until(&board, "a phone that is looked for", || missed(&board).ok().filter(|now| *now > before))?;
    stage.saw(format!("it is looked for, and not near ({:.1} s)", secs(begin)));
    phone.does("come")?;
    let begin = Instant::now();
    phone.does("call")?;
    phone.says(&board, "shares its connection")?;
    stage.saw(format!("it is back and calls: asked again after {:.1} s", secs(begin)));
    back(&board)?;
    let still = board.run("systemctl show bluetooth --property MainPID")?;
    ensure(daemon == still, || format!("bluetoothd was {daemon} and is {still}\n{}", board.journal()))?;
    unsaid(&board, &[&password])?;
    stage.ends(&board)
}

/// What the board's controller says.
const HEARD: &str = "/run/lab/controller.txt";

/// The phone goes without a word: the doors open.
fn goes(stage: &Stage<'_>, board: &RadioBoard, phone: &mut Phone) -> Result<(), Trouble> {
    let begin = Instant::now();
    phone.does("go")?;
    until(board, "open doors", || doors(board).filter(|doors| doors["bluetooth"] == "DOOR_OPEN").map(drop))?;
    stage.saw(format!("the phone has gone: Bluetooth is open after {:.1} s", secs(begin)));
    Ok(())
}

/// The device is online by the phone, and its doors are closed.
fn back(board: &RadioBoard) -> Result<(), Trouble> {
    until(board, "closed doors", || doors(board).filter(|doors| doors["bluetooth"] == "DOOR_CLOSED").map(drop))?;
    let told = board.run("ip -4 -br address show bnep0; ip route")?;
    ensure(told.contains("192.168.44.2/24") && told.contains("default via 192.168.44.1"), || told.clone())
}

/// How often a phone was asked for its name and did not answer.
fn missed(board: &RadioBoard) -> Result<usize, Trouble> {
    let said = board.run(&format!("grep -A 1 'Remote Name Req Complete' {HEARD} | grep -c 'Page Timeout' || true"))?;
    said.trim().parse().map_err(|error| Trouble::of(HEARD, error))
}
