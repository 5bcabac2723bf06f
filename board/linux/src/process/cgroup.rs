//! The control group that a service manager leaves to the agent: where machine servers live, and what they may use.
//!
//! Below the folder of a delegated unit each start gets a leaf of its own, `server/1`, `server/2` and so on, so that
//! what one of them left behind is known, daemons included, when the next one runs already. Limits stand on `server`.
//! The agent moves into the leaf `agent` only when a limit is wanted: a group with controllers below it may hold no
//! process itself. For the same reason the service manager could then not start another agent into the unit, so
//! limits are set only where the unit undoes that after each end ([`free_unit`], [`FREED`]).
//!
//! Only the folder of a unit with `Delegate=yes` is touched. On hosts where the groups of version 1 are in charge there
//! is the same folder in the hierarchy of the name `systemd`, for finding processes, and no limits.

use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

use board::process::Limits;

/// Where control groups are mounted.
const MOUNTS: &str = "/sys/fs/cgroup";
/// The leaf for machine servers, with a leaf of its own for each start.
const SERVER: &str = "server";
/// The leaf for the agent itself.
const AGENT: &str = "agent";
/// Where systemd runs what it runs after the end of a delegated unit.
const CONTROL: &str = ".control";
/// In the environment of a service whose unit calls [`free_unit`] after each end.
const FREED: &str = "MACHINE_SERVER_LIMITS";
/// Leaves that are looked at; each restart makes one, and the empty ones are removed.
const LEAVES_MAX: usize = 64;
/// How often processes are moved out of the way; each time there may be new ones.
const MOVES_MAX: usize = 5;
/// Processes of a leaf that are looked at.
const MEMBERS_MAX: usize = 4096;
/// How deep a machine server's own groups are looked at.
const DEPTH_MAX: u32 = 8;

/// The control group of the agent's unit.
pub(crate) struct Unit {
    folder: PathBuf,
    /// Controllers exist here.
    unified: bool,
    /// Somebody turns controllers off again before the next agent is started.
    freed: bool,
}

/// Where one machine server lives, with everything it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    folder: PathBuf,
}

/// Turns off what keeps a service manager from starting a process into the unit that this process belongs to. Limits
/// of a machine server are in force again when the next agent sets them.
pub fn free_unit() -> io::Result<()> {
    match Unit::find() {
        Some(unit) if unit.unified => unit.switch_controllers("-", &unit.switched_on()),
        _ => Ok(()),
    }
}

/// Whether a service manager has left a control group to this process: daemons of a machine server are found then.
#[must_use]
pub fn is_ours() -> bool {
    Unit::find().is_some()
}

impl Unit {
    /// As the kernel and the environment say; `None` where no service manager has left a group to this process.
    pub(crate) fn find() -> Option<Unit> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::found(&groups, Path::new(MOUNTS), is_delegated, std::env::var_os(FREED).is_some())
    }

    fn found(groups: &str, mounts: &Path, is_delegated: impl Fn(&Path) -> bool, freed: bool) -> Option<Unit> {
        let lines = groups.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?, fields.next()?))
        });
        let find = |name: &str| lines.clone().find_map(|(controllers, path)| (controllers == name).then_some(path));
        let in_unified = find("")
            .into_iter()
            .flat_map(|path| [mounts.to_owned(), mounts.join("unified")].map(|mount| (mount, path)));
        let named = find("name=systemd").map(|path| (mounts.join("systemd"), path));
        in_unified.chain(named).find_map(|(mount, path)| {
            let folder = mount.join(unit_in(path)?);
            let unified = folder.join("cgroup.controllers").exists();
            let fits = folder.join("cgroup.procs").exists() && is_delegated(&folder);
            fits.then_some(Unit { folder, unified, freed })
        })
    }

    /// A place for the next machine server.
    pub(crate) fn fresh(&self) -> io::Result<Leaf> {
        let newest = self.leaves().iter().filter_map(Leaf::number).max().unwrap_or(0);
        let folder = self.folder.join(SERVER).join((newest + 1).to_string());
        fs::create_dir_all(&folder)?;
        Ok(Leaf { folder })
    }

    /// Where a process lives, if that is one of ours.
    pub(crate) fn leaf_of(&self, pid: u32) -> Option<Leaf> {
        self.leaves().into_iter().find(|leaf| leaf.members().contains(&pid))
    }

    /// Every place that a machine server has had and that was not removed yet.
    pub(crate) fn leaves(&self) -> Vec<Leaf> {
        let entries = fs::read_dir(self.folder.join(SERVER)).into_iter().flatten();
        let leaves = entries.filter_map(|entry| {
            let leaf = Leaf { folder: entry.ok()?.path() };
            leaf.number().map(|_| leaf)
        });
        leaves.take(LEAVES_MAX).collect()
    }

    /// How often the kernel has ended a process of a machine server for want of memory; `None` where nobody counts.
    pub(crate) fn ended_for_memory(&self) -> Option<u64> {
        let events = fs::read_to_string(self.folder.join(SERVER).join("memory.events")).ok()?;
        events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
    }

    /// Puts limits in force and takes away what is not wanted any more. Says what could not be done and why.
    pub(crate) fn limit(&self, limits: &Limits) -> Vec<String> {
        let memory = limits.memory_max_bytes.map(|bytes| bytes.to_string());
        let weight = limits.cpu_weight.map(|weight| weight.to_string());
        let mut trouble = Vec::new();
        for (controller, file, setting, usual, wanted) in [
            ("memory", "memory.max", "memory_max_megabytes", "max", memory),
            ("cpu", "cpu.weight", "cpu_weight", "100", weight),
        ] {
            let done = match &wanted {
                Some(value) => self.switch_on(controller).and_then(|()| self.set(file, value)),
                None if self.switched_on().iter().any(|on| on == controller) => self
                    .set(file, usual)
                    .and_then(|()| self.switch_controllers("-", &[controller.to_owned()]).map_err(|e| e.to_string())),
                None => Ok(()),
            };
            if let Err(reason) = done {
                trouble.push(not_in_force(setting, &reason));
            }
        }
        trouble
    }

    fn set(&self, file: &str, value: &str) -> Result<(), String> {
        write(&self.folder.join(SERVER).join(file), value).map_err(|error| format!("{file}: {error}"))
    }

    fn switch_on(&self, controller: &str) -> Result<(), String> {
        if !self.unified {
            return Err("this system's kernel keeps processes in control groups of version 1".into());
        }
        let offered = fs::read_to_string(self.folder.join("cgroup.controllers")).unwrap_or_default();
        if !offered.split_whitespace().any(|offered| offered == controller) {
            return Err(format!("this system does not offer the controller \"{controller}\" to the service"));
        }
        fs::create_dir_all(self.folder.join(SERVER)).map_err(|error| error.to_string())?;
        if self.switched_on().iter().any(|on| on == controller) {
            return Ok(());
        }
        if !self.freed {
            return Err(format!(
                "the unit of this service is not the one that the agent installs: it would keep the agent from being \
                 started again. Install the unit again, or set {FREED}=1 in one that runs \"end-server\" in ExecStopPost"
            ));
        }
        self.clear().map_err(|error| format!("the control group could not be divided: {error}"))?;
        self.switch_controllers("+", &[controller.to_owned()]).map_err(|error| error.to_string())
    }

    /// Controllers that are on below the unit.
    fn switched_on(&self) -> Vec<String> {
        let on = fs::read_to_string(self.folder.join("cgroup.subtree_control")).unwrap_or_default();
        on.split_whitespace().map(str::to_owned).collect()
    }

    fn switch_controllers(&self, sign: &str, controllers: &[String]) -> io::Result<()> {
        let control = self.folder.join("cgroup.subtree_control");
        controllers.iter().try_for_each(|controller| write(&control, &format!("{sign}{controller}")))
    }

    /// Leaves no process in the unit's own group: the agent has its leaf, and what else is there came with a machine
    /// server that was started before there were leaves.
    fn clear(&self) -> io::Result<()> {
        let agent = Leaf { folder: self.folder.join(AGENT) };
        fs::create_dir_all(&agent.folder)?;
        let unit = Leaf { folder: self.folder.clone() };
        let own = std::process::id();
        for _ in 0..MOVES_MAX {
            let here = unit.own_members();
            if here.is_empty() {
                break;
            }
            let others = here.iter().any(|pid| *pid != own).then(|| self.fresh()).transpose()?;
            for pid in here {
                let leaf = if pid == own { Some(&agent) } else { others.as_ref() };
                // Fails for one that has just ended, which is as good.
                let _ = leaf.map(|leaf| write(&leaf.folder.join("cgroup.procs"), &pid.to_string()));
            }
        }
        Ok(())
    }
}

impl Leaf {
    fn number(&self) -> Option<u64> {
        self.folder.file_name()?.to_str()?.parse().ok()
    }

    /// Open for a process that is about to join by writing `0`.
    pub(crate) fn door(&self) -> io::Result<fs::File> {
        fs::OpenOptions::new().write(true).open(self.folder.join("cgroup.procs"))
    }

    /// Every process in it, and in groups that they made themselves.
    pub(crate) fn members(&self) -> Vec<u32> {
        let mut found = Vec::new();
        self.gather(DEPTH_MAX, &mut found);
        found
    }

    fn gather(&self, depth: u32, found: &mut Vec<u32>) {
        found.extend(self.own_members());
        found.truncate(MEMBERS_MAX);
        for child in self.children().into_iter().take(if depth > 0 { LEAVES_MAX } else { 0 }) {
            child.gather(depth - 1, found);
        }
    }

    fn own_members(&self) -> Vec<u32> {
        let members = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        members.lines().filter_map(|line| line.parse().ok()).take(MEMBERS_MAX).collect()
    }

    fn children(&self) -> Vec<Leaf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.map(|entry| Leaf { folder: entry.path() }).collect()
    }

    /// Ends everything in it at once, also what is being started. False where the kernel (before 5.14, or version 1)
    /// cannot do that.
    pub(crate) fn kill(&self) -> bool {
        write(&self.folder.join("cgroup.kill"), "1").is_ok()
    }

    /// Removes it when it is empty.
    pub(crate) fn remove(&self) {
        self.remove_below(DEPTH_MAX);
    }

    fn remove_below(&self, depth: u32) {
        if depth > 0 {
            self.children().iter().for_each(|child| child.remove_below(depth - 1));
        }
        // Refused while anybody lives in it.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// For people: a limit is not in force, and why.
pub(super) fn not_in_force(setting: &str, reason: &str) -> String {
    format!("server_limits.{setting} is not in force: {reason}")
}

/// The unit's part of a path in a hierarchy; a leaf of ours, or of the service manager, does not count.
fn unit_in(path: &str) -> Option<&Path> {
    let path = Path::new(path.strip_prefix('/')?);
    let unit = match path.file_name()?.to_str()? {
        AGENT | CONTROL => path.parent()?,
        _ => path,
    };
    unit.extension().is_some_and(|kind| kind == "service").then_some(unit)
}

/// Whether the service manager has left it to the unit.
fn is_delegated(folder: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].into_iter().any(|name| {
        let mut value = [0; 8];
        let length = rustix::fs::getxattr(folder, name, &mut value).unwrap_or(0);
        value.get(..length) == Some(b"1")
    })
}

/// Such files are written in one piece, and never made.
fn write(path: &Path, value: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of files that looks like the kernel's, where nothing answers by itself.
    struct Tree(tempfile::TempDir);

    const UNIT: &str = "system.slice/p.service";

    impl Tree {
        fn new(mount: &str, controllers: Option<&str>) -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            let unit = tree.path(mount).join(UNIT);
            fs::create_dir_all(&unit).unwrap();
            fs::write(unit.join("cgroup.procs"), "").unwrap();
            if let Some(controllers) = controllers {
                fs::write(unit.join("cgroup.controllers"), controllers).unwrap();
                fs::write(unit.join("cgroup.subtree_control"), "").unwrap();
            }
            tree
        }

        fn path(&self, below: &str) -> PathBuf {
            self.0.path().join(below)
        }

        fn find(&self, groups: &str, freed: bool) -> Option<Unit> {
            Unit::found(groups, self.0.path(), |_| true, freed)
        }

        fn in_unit(&self, file: &str) -> PathBuf {
            self.path(UNIT).join(file)
        }

        fn read(&self, file: &str) -> String {
            fs::read_to_string(self.in_unit(file)).unwrap()
        }
    }

    #[test]
    fn the_unit_is_found_wherever_in_it_this_process_is() {
        let unified = Tree::new("", Some("cpu memory"));
        let hybrid = Tree::new("unified", Some(""));
        let first = Tree::new("systemd", None);
        let own = "0::/system.slice/p.service\n";
        let rows = [
            (&unified, own, true),
            (&unified, "0::/system.slice/p.service/agent\n", true),
            (&unified, "0::/system.slice/p.service/.control\n", true),
            (&unified, "0::/system.slice/p.service/server/3\n", false),
            (&unified, "0::/system.slice/q.service\n", false),
            (&unified, "0::/\n", false),
            (&unified, "", false),
            (&unified, "0::/user.slice/user-1000.slice/session-3.scope\n", false),
            (&hybrid, "1:name=systemd:/system.slice/p.service\n0::/system.slice/p.service\n", true),
            (&first, "5:cpu,cpuacct:/\n1:name=systemd:/system.slice/p.service\n", true),
            (&first, "5:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n", false),
            (&first, own, false),
        ];
        for (tree, groups, found) in rows {
            assert_eq!(tree.find(groups, true).is_some(), found, "{groups}");
        }
        assert!(Unit::found(own, unified.0.path(), |_| false, true).is_none(), "the service manager has it");
        assert!(!is_delegated(&unified.in_unit("")), "by default");
    }

    #[test]
    fn each_start_has_a_leaf_until_it_is_empty() {
        let tree = Tree::new("", Some("memory"));
        let unit = tree.find("0::/system.slice/p.service\n", true).unwrap();
        assert_eq!(unit.leaves(), []);
        let first = unit.fresh().unwrap();
        let second = unit.fresh().unwrap();
        assert_eq!([first.number(), second.number()], [Some(1), Some(2)]);
        let below = first.folder.join("made/by/it");
        fs::create_dir_all(&below).unwrap();
        fs::write(first.folder.join("cgroup.procs"), "71\n72\n").unwrap();
        fs::write(below.join("cgroup.procs"), "73\n").unwrap();
        assert_eq!(first.members(), [71, 72, 73]);
        assert_eq!(unit.leaf_of(73), Some(first));
        assert_eq!(unit.leaf_of(74), None);
        second.remove();
        assert_eq!(unit.leaves().len(), 1);
        assert!(!second.kill(), "there is no such file");
        assert_eq!(unit.fresh().unwrap().number(), Some(2));
        fs::create_dir_all(tree.in_unit("server/not ours")).unwrap();
        assert_eq!(unit.leaves().len(), 2);
    }

    #[test]
    fn limits_are_set_moved_and_taken_away() {
        let tree = Tree::new("", Some("cpu memory"));
        let unit = tree.find("0::/system.slice/p.service\n", true).unwrap();
        assert_eq!(unit.limit(&Limits::default()), Vec::<String>::new());
        assert!(!tree.in_unit("agent").exists(), "nothing is divided for nothing");

        fs::create_dir_all(tree.in_unit("server")).unwrap();
        for file in ["memory.max", "cpu.weight"] {
            fs::write(tree.in_unit("server").join(file), "").unwrap();
        }
        let limits = Limits { memory_max_bytes: Some(64 << 20), ..Limits::default() };
        assert_eq!(unit.limit(&limits), Vec::<String>::new());
        assert_eq!(tree.read("cgroup.subtree_control"), "+memory");
        assert_eq!(tree.read("server/memory.max"), "67108864");
        assert_eq!(tree.read("server/cpu.weight"), "", "not asked for");
        assert!(tree.in_unit("agent").is_dir());

        // As the kernel would show it.
        fs::write(tree.in_unit("cgroup.subtree_control"), "memory").unwrap();
        fs::write(tree.in_unit("server/memory.max"), "").unwrap();
        let both = Limits { memory_max_bytes: Some(1 << 20), cpu_weight: Some(7), open_files_max: None };
        assert_eq!(unit.limit(&both), Vec::<String>::new());
        assert_eq!((tree.read("server/memory.max"), tree.read("server/cpu.weight")), ("1048576".into(), "7".into()));

        fs::write(tree.in_unit("cgroup.subtree_control"), "memory").unwrap();
        fs::write(tree.in_unit("server/memory.max"), "").unwrap();
        assert_eq!(unit.limit(&Limits::default()), Vec::<String>::new());
        assert_eq!(tree.read("server/memory.max"), "max");
        assert_eq!(tree.read("cgroup.subtree_control"), "-memory", "and nobody is hindered by it");
    }

    #[test]
    fn what_cannot_be_limited_is_said_with_the_reason() {
        let limits = Limits { memory_max_bytes: Some(1), cpu_weight: Some(1), open_files_max: None };
        let rows = [
            ("", Some("memory"), true, 1, "cpu_weight is not in force: this system does not offer"),
            ("", Some("cpu memory"), false, 2, "would keep the agent from being started again"),
            ("systemd", None, true, 2, "control groups of version 1"),
        ];
        for (mount, controllers, freed, count, words) in rows {
            let tree = Tree::new(mount, controllers);
            let groups = "1:name=systemd:/system.slice/p.service\n0::/system.slice/p.service\n";
            let unit = tree.find(groups, freed).unwrap();
            if mount.is_empty() {
                fs::create_dir_all(tree.in_unit("server")).unwrap();
                fs::write(tree.in_unit("server/memory.max"), "").unwrap();
            }
            let trouble = unit.limit(&limits);
            assert_eq!(trouble.len(), count, "{trouble:?}");
            assert!(trouble.iter().any(|sentence| sentence.contains(words)), "{trouble:?}");
        }
    }

    #[test]
    fn kills_for_memory_are_counted_and_controllers_turned_off() {
        let tree = Tree::new("", Some("memory"));
        let unit = tree.find("0::/system.slice/p.service\n", true).unwrap();
        assert_eq!(unit.ended_for_memory(), None);
        fs::create_dir_all(tree.in_unit("server")).unwrap();
        fs::write(tree.in_unit("server/memory.events"), "low 0\noom 3\noom_kill 2\noom_group_kill 0\n").unwrap();
        assert_eq!(unit.ended_for_memory(), Some(2));
        fs::write(tree.in_unit("cgroup.subtree_control"), "memory").unwrap();
        unit.switch_controllers("-", &unit.switched_on()).unwrap();
        assert_eq!(tree.read("cgroup.subtree_control"), "-memory");
    }
}
