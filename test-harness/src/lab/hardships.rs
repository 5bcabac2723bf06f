//! What goes wrong with an installed agent, and may not be the end of it nor leave a second machine server.

use std::{fs, time::Instant};

use api::{
    brand::{AGENT, LAUNCHER},
    pb::platform::fleet::v1::{Product, update_status::Phase},
};

use super::{
    board::Target as _,
    site::{DOWNLOADS, FIRST, server_pid, update},
    stories::{SLOT_A, Stage, UNIT, active_again, adjust, ensure, ready, taken_back},
};
use crate::real::{Trouble, agents, eventually, stand_in};

/// Where the launcher is.
const INSTALLED: &str = "/opt/platform/bin/platform-launcher";

/// A release that hangs before it is ready: ended by the launcher's limit three times, then left; the machine server
/// does not notice.
pub(super) fn hang_at_start(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (mut site, board, pid) = stage.installed()?;
    let limit = "PLATFORM_AGENT_START_SECONDS=2\n";
    let path = board.path("/etc/default/platform-agent");
    fs::write(&path, limit).map_err(|error| Trouble::of(path.display(), error))?;
    board.run(&format!("systemctl restart {UNIT}"))?;
    let pid = eventually("the next machine server", || server_pid().filter(|now| *now != pid))?;
    site.until_ready(&board)?;
    let third = site.path("agent-3");
    agents::build_hung("3.0.0", &third)?;
    let back = taken_back(&mut site, &board, &third, pid)?;
    let ended = back.journal.lines().filter(|line| line.contains("status=14/ALRM")).count();
    ensure(ended == 3, || format!("{ended} ended\n{}", board.journal()))?;
    Ok(vec![format!("a version that hangs, each start ended after 2 s: {}", back.seen)])
}

/// Somebody holds the root folder's lock: the service waits, and goes on when it is free.
pub(super) fn lock_held(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (site, board, pid) = stage.installed()?;
    let main = board.property("MainPID")?;
    // Stopped, so that the lock is taken before the next agent.
    adjust(&board, "RestartSec=6")?;
    board.run(&format!("kill -KILL {main}"))?;
    board.run("flock --version >/dev/null")?;
    board.run("systemd-run --quiet --unit holder flock /opt/platform/agent.lock sleep 1000")?;
    eventually("its refusal", || board.journal().contains("another agent runs").then_some(()))
        .map_err(|trouble| Trouble(format!("{trouble}\n{}", board.journal())))?;
    eventually("the launcher that tries again", || {
        (board.property("NRestarts").ok()?.parse::<u32>().ok()? >= 2).then_some(())
    })
    .map_err(|trouble| Trouble(format!("{trouble}\n{}", board.journal())))?;
    ensure(board.property("ActiveState")? != "failed", || board.journal())?;
    ensure(server_pid() == Some(pid), || "the machine server was not kept".to_owned())?;
    let begin = Instant::now();
    board.run("systemctl stop holder")?;
    active_again(&board, &main)?;
    let took = begin.elapsed().as_millis();
    site.until_ready(&board)?;
    ensure(server_pid() == Some(pid), || format!("not adopted\n{}", board.journal()))?;
    Ok(vec![format!(
        "refused while the lock was held, active {took} ms after it was free; machine server {pid} adopted"
    )])
}

/// SIGKILL in the middle of a stop: the machine server ends all the same.
pub(super) fn killed_in_stop(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (mut site, board, pid) = stage.installed()?;
    let deaf = site.path("deaf");
    stand_in::build_with("2.0.0", &[("ignore-sigterm", "true")], &deaf)?;
    site.publish("platform-server", "2.0.0", &deaf)?;
    site.until(&board, "a staged machine server", |status| {
        update(status, Product::MachineServer).phase() == Phase::Staged
    })?;
    // Without a maintenance window it begins with the next start of the agent.
    board.run(&format!("systemctl restart {UNIT}"))?;
    let deaf = eventually("the machine server that does not hear", || server_pid().filter(|now| *now != pid))?;
    site.until_ready(&board)?;
    let main = board.property("MainPID")?;
    board.run(&format!("systemctl stop --no-block {UNIT}"))?;
    eventually("the stop", || board.journal().contains("asked to stop").then_some(()))?;
    eventually("its mark", || board.path("/opt/platform/state/platform-agent.stopping").exists().then_some(()))?;
    board.run(&format!("kill -KILL {main}"))?;
    // It is given its two minutes; nobody here waits that long.
    let asked = || (board.property("SubState").ok()? == "stop-post").then_some(());
    eventually("what runs after the stop", asked)
        .map_err(|trouble| Trouble(format!("{trouble}\n{}", board.journal())))?;
    ensure(server_pid() == Some(deaf), || "it heard".to_owned())?;
    board.run("pkill -KILL -f [v]ersions/platform-server; true")?;
    eventually("the end of the service", || {
        let state = board.property("ActiveState").ok()?;
        matches!(&*state, "inactive" | "failed").then_some(())
    })?;
    let said = board.journal();
    ensure(said.contains("machine server: process"), || format!("it was left alone\n{said}"))?;
    ensure(server_pid().is_none(), || format!("the machine server outlived it\n{said}"))?;
    Ok(vec![
        "killed in the middle of a stop, by a signal for systemd: the machine server was ended all the same".to_owned(),
    ])
}

/// What is no launcher is not installed; a spoilt one is replaced by the one before.
pub(super) fn bad_launcher(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (site, board, pid) = stage.installed()?;
    let main = board.property("MainPID")?;
    board.run(&format!("printf '#!/bin/sh\\n' >/root/text; chmod 755 /root/text; sum=$(sha256sum <{INSTALLED}); ! {DOWNLOADS}/{AGENT} --install --launcher /root/text && [ \"$sum\" = \"$(sha256sum <{INSTALLED})\" ]"))?;
    // A launcher of its own bytes that works takes its place, without a restart of anything.
    board.run(&format!("cp {DOWNLOADS}/{LAUNCHER} /root/other; printf more >>/root/other"))?;
    let said = board.run(&format!("{DOWNLOADS}/{AGENT} --install --launcher /root/other"))?;
    ensure(said.contains("copied") && !said.contains("stopped"), || said.clone())?;
    board.run(&format!("printf '# changed\\n' >>/etc/systemd/system/{UNIT}"))?;
    let said = board.run(&format!("{DOWNLOADS}/{AGENT} --install"))?;
    ensure(said.contains("written") && said.contains("active"), || said.clone())?;
    ensure(board.property("MainPID")? == main && server_pid() == Some(pid), || "it was restarted".to_owned())?;
    // A disk that lost half of it.
    board.run(&format!(
        "head -c 5000 {INSTALLED}.previous >/root/half; chmod 755 /root/half; mv /root/half {INSTALLED}"
    ))?;
    let begin = Instant::now();
    board.run(&format!("kill -KILL {main}"))?;
    active_again(&board, &main)?;
    let took = begin.elapsed().as_millis();
    site.until_ready(&board)?;
    ensure(server_pid() == Some(pid), || format!("not adopted\n{}", board.journal()))?;
    ensure(board.journal().contains("The one before takes its place"), || board.journal())?;
    let restarts = board.property("NRestarts")?;

    // Both are gone: it is tried once a second, not in a spin.
    board.run(&format!("mv {INSTALLED} /root/good; rm {INSTALLED}.previous"))?;
    let main = board.property("MainPID")?;
    board.run(&format!("kill -KILL {main}"))?;
    let count = || board.property("NRestarts").ok()?.parse::<u32>().ok();
    let first = eventually("a first try", || count().filter(|now| now.to_string() != restarts))?;
    let begin = Instant::now();
    let then = eventually("some more tries", || count().filter(|now| *now >= first + 3))?;
    let seconds = begin.elapsed().as_secs_f64();
    ensure(f64::from(then - first) / seconds < 2.0, || format!("{} tries in {seconds:.1} s", then - first))?;
    board.run(&format!("mv /root/good {INSTALLED}"))?;
    active_again(&board, &main)?;
    ensure(server_pid() == Some(pid), || format!("not adopted\n{}", board.journal()))?;
    Ok(vec![
        "a text was refused as launcher; another launcher and another unit restarted nothing".to_owned(),
        format!("half a launcher: the one before took its place, ready {took} ms after the agent was killed"),
        format!("no launcher at all: {} tries in {seconds:.1} s; with one again everything went on", then - first),
    ])
}

/// An installation that has no room, or fails after the stop, leaves what was there running.
pub(super) fn full_disk(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (site, board, pid) = stage.installed()?;
    site.configure(&serde_json::json!({"version_control": {"agent": FIRST}}))?;
    let newer = board.path(DOWNLOADS).join("newer");
    fs::create_dir_all(&newer).map_err(|error| Trouble::of(newer.display(), error))?;
    agents::build("1.5.0", &newer.join(AGENT))?;
    let main = board.property("MainPID")?;
    let install = format!("{DOWNLOADS}/newer/{AGENT} --install");
    // A slot's folder that has room for nothing.
    let slot = "/opt/platform/versions/platform-agent/b";
    board.run(&format!("mkdir -p {slot}; mount -t tmpfs -o size=64k none {slot}"))?;
    let refused = board.ask(&install)?;
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    board.run(&format!("umount {slot}"))?;
    ensure(!refused.status.success() && words.contains("No space"), || words.clone())?;
    ensure(board.property("MainPID")? == main && server_pid() == Some(pid), || "the service was stopped".to_owned())?;
    // After the stop: the record cannot be written.
    board.run("mkdir -p /opt/platform/state/.platform-agent.record.new~/inside")?;
    let refused = board.ask(&install)?;
    board.run("rm -r /opt/platform/state/.platform-agent.record.new~")?;
    let words = String::from_utf8_lossy(&[&refused.stdout[..], &refused.stderr].concat()).into_owned();
    ensure(!refused.status.success() && words.contains("again, as it was not done"), || words.clone())?;
    active_again(&board, &main)?;
    let next = ready(&site, &board)?;
    ensure(site.status()?.agent_version == FIRST, || "another version".to_owned())?;
    let said = board.run(&install)?;
    ensure(said.contains("started"), || said.clone())?;
    Ok(vec![
        format!("no room for the copy: refused, machine server {pid} and agent went on"),
        format!(
            "failed after the stop: the version that was there started again (machine server {next}); then it worked"
        ),
    ])
}

/// A service that does not run any more, and whose machine server does: nothing is left, and nothing runs twice.
pub(super) fn uninstall_failed(stage: &Stage<'_>) -> Result<Vec<String>, Trouble> {
    let (site, board, pid) = stage.installed()?;
    let main = board.property("MainPID")?;
    // As after `systemctl kill`, or with an end that nobody restarts.
    adjust(&board, "Restart=no")?;
    board.run(&format!("kill -KILL {main}"))?;
    eventually("a failed service", || (board.property("ActiveState").ok()? == "failed").then_some(()))?;
    ensure(server_pid() == Some(pid), || "the machine server was not kept".to_owned())?;
    let said = board.run(&format!("{SLOT_A} --uninstall"))?;
    ensure(said.contains("ended") && server_pid().is_none(), || format!("{said}\n{}", board.journal()))?;
    board.run(&format!("rm -r /etc/systemd/system/{UNIT}.d; systemctl daemon-reload"))?;
    site.install(&board)?;
    let next = ready(&site, &board)?;
    let servers = board.run("pgrep -c -f [v]ersions/platform-server/")?;
    ensure(servers == "1", || format!("{servers} machine servers"))?;
    Ok(vec![format!(
        "machine server {pid} of a failed service ended with the uninstallation; installed again, {next} is the only one"
    )])
}
