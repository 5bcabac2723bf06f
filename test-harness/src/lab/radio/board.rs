//! A board with radios and the people around it, as stories want them.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{
    air,
    machine::{MEMORY, Machine, Size, Source},
};
use crate::{
    lab::board::{Target, leave_logs},
    real::{Trouble, eventually},
};

/// How long a command on a board may take: all of it is emulated.
const COMMAND_LIMIT: Duration = Duration::from_secs(180);

/// What such a board can say of itself beside its journal.
const NETWORK: &str = "nmcli device; nmcli --fields NAME,DEVICE,AUTOCONNECT,AUTOCONNECT-PRIORITY connection; ip -br address; \
                       ip route; nmcli device wifi list --rescan no; ps axo pid,ppid,stat,etime,cputime,args; uptime";

/// A board with radios; it ends with the value.
pub struct RadioBoard {
    machine: Machine,
    image: PathBuf,
}

impl RadioBoard {
    /// A board in a new folder.
    pub fn start(source: &Source, folder: &Path) -> Result<RadioBoard, Trouble> {
        RadioBoard::of(source, folder, Size::Megabytes(MEMORY))
    }

    /// One with the memory of a machine of 128 MB, of which people's access points and phones take their part.
    pub fn start_small(source: &Source, folder: &Path) -> Result<RadioBoard, Trouble> {
        RadioBoard::of(source, folder, Size::Small)
    }

    fn of(source: &Source, folder: &Path, size: Size) -> Result<RadioBoard, Trouble> {
        Ok(RadioBoard { machine: Machine::start(source, folder, size)?, image: source.image.clone() })
    }

    /// What the agent weighs, and what is left of the board's memory.
    pub fn weighs(&self) -> Result<String, Trouble> {
        let pid = self.property("MainPID")?;
        let said =
            self.run(&format!("cat /proc/{pid}/smaps_rollup /proc/meminfo; dmesg | grep -c 'Out of memory' || true"))?;
        let figure = |name: &str| {
            let row = said
                .lines()
                .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.split_whitespace().next())
                .next();
            row.and_then(|figure| figure.parse::<u64>().ok()).unwrap_or_default()
        };
        let [pss, dirty, total, left] = ["Pss", "Private_Dirty", "MemTotal", "MemAvailable"].map(figure);
        match said.lines().last() {
            Some("0") if pss > 0 && total > 0 => {}
            kills => {
                return Err(Trouble(format!(
                    "{kills:?} programs were killed for want of memory, or no figures: {said}"
                )));
            }
        }
        Ok(format!(
            "the agent has a PSS of {pss} KiB, {dirty} KiB of it private and dirty; {} of {} MB are left on the board, which took \
             {} s of processor",
            left / 1024,
            total / 1024,
            self.machine.processor_seconds()
        ))
    }

    /// Has a port of the board's own loopback lead to the same port of this machine's, by whatever way out the board has:
    /// an agent takes plain http from nowhere else. `url` is where a fleet server here listens.
    pub fn lead_to(&self, url: &str) -> Result<(), Trouble> {
        let port = url.rsplit(':').next().and_then(|port| port.trim_end_matches('/').parse::<u16>().ok());
        let port = port.ok_or_else(|| Trouble(format!("{url} has no port")))?;
        let rules = format!(
            "table ip lab {{\n chain out {{\n type nat hook output priority -100\n ip daddr 127.0.0.1 tcp dport {port} \
             dnat to 10.0.2.2\n }}\n chain way {{\n type nat hook postrouting priority srcnat\n ip daddr 10.0.2.2 \
             masquerade\n }}\n}}\n"
        );
        self.write("/run/lab/way.nft", 0o644, rules.as_bytes())?;
        self.run("sysctl -q net.ipv4.conf.all.route_localnet=1 && nft -f /run/lab/way.nft").map(drop)
    }

    /// The machine below.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Gives the board the way out by cable, with an address by hand: the quickest way online.
    pub fn plug_into_office(&self) -> Result<(), Trouble> {
        self.machine.plug_cable(true)?;
        self.run(
            "nmcli --wait 60 connection add type ethernet con-name office ifname eth0 ipv4.method manual \
             ipv4.addresses 192.168.88.2/24 ipv4.gateway 192.168.88.1 ipv6.method disabled connection.autoconnect no",
        )?;
        eventually("a way out by cable", || {
            let up = "nmcli --wait 60 connection up office && ping -c 1 -W 2 10.0.2.2";
            Target::ask(self, up).ok()?.0.then_some(())
        })
    }

    /// Opens the air for Bluetooth and plugs in `hci0`.
    pub fn plug_in_bluetooth(&self) -> Result<(), Trouble> {
        air::open(&self.image, &self.machine, &[])?;
        self.run("lab-bluetooth in 0").map(drop)
    }

    /// The same with controllers of both kinds, LE and classic.
    pub fn plug_in_both_bluetooths(&self) -> Result<(), Trouble> {
        air::open(&self.image, &self.machine, &["--classic"])?;
        self.run("lab-bluetooth in 0").map(drop)
    }

    /// Plugs in `hci0` in the air of another board, which is open: this one is near that one, with a kernel and a bluetoothd of its own.
    pub fn plug_in_bluetooth_near(&self, other: &RadioBoard) -> Result<(), Trouble> {
        air::open(&self.image, &self.machine, &["--of", &other.machine.folder().to_string_lossy()])?;
        self.run("lab-bluetooth in 0").map(drop)
    }

    /// A script of a phone with Bluetooth, to be started.
    #[must_use]
    pub fn phone_script(&self, script: &str) -> Command {
        air::python(&self.image, &self.machine, Path::new(script))
    }

    /// Runs a script of a phone with Bluetooth; what it printed.
    pub fn bluetooth_phone(&self, script: &str, words: &[&str]) -> Result<String, Trouble> {
        let output = self.phone_script(script).args(words).output().map_err(|error| Trouble::of("python3", error))?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match output.status.success() {
            true => Ok(said),
            false => Err(Trouble(format!("{script}: {said}\n{}", String::from_utf8_lossy(&output.stderr)))),
        }
    }

    /// The machine server's process as it knows itself; nothing while none answers.
    #[must_use]
    pub fn server_pid(&self) -> Option<u32> {
        let (there, said) = Target::ask(self, "curl -fsS -m 5 http://127.0.0.1:8081/pid").ok()?;
        there.then(|| said.trim().parse().ok()).flatten()
    }
}

impl Target for RadioBoard {
    fn ask(&self, line: &str) -> Result<(bool, String), Trouble> {
        let mut said = Vec::new();
        let code = self.machine.channel()?.execute(line, COMMAND_LIMIT, &mut said)?;
        Ok((code == 0, String::from_utf8_lossy(&said).into_owned()))
    }

    fn write(&self, path: &str, mode: u32, content: &[u8]) -> Result<(), Trouble> {
        self.machine.channel()?.write(path, mode, content)
    }

    fn put(&self, from: &Path, to: &str) -> Result<(), Trouble> {
        self.machine.channel()?.put(from, to)
    }

    fn outside(&self) -> &'static str {
        // As `lead_to` has made it.
        "127.0.0.1"
    }
}

impl Drop for RadioBoard {
    fn drop(&mut self) {
        leave_logs(self, self.machine.folder(), NETWORK);
        let _ = self.machine.stop();
    }
}
