//! What is stored about the slots, compared with what is in them; and a download that nobody goes on with.

use std::time::Duration;

use super::{
    actor::Ports,
    kind::Kind,
    machine::Policy,
    record::{Outcome, RECORD_BYTES_MAX, Record, State},
    slots::{Installed, Layout, Pointer, Slot},
};

/// What has arrived of a download is given up when nothing was added to it for this long: a small disk needs the room.
const PARTIAL_AGE_MAX: Duration = Duration::from_secs(3 * 24 * 3600);

/// What a version is called whose bytes are there and whose name is not.
pub(super) const UNKNOWN: &str = "unknown";

/// What is stored, compared with what is there.
pub(super) async fn load(policy: &Policy, ports: &Ports) -> Record {
    let layout = &policy.layout;
    let lengths = Slot::ALL.map(|slot| {
        let name = layout.executable(slot);
        let listed = ports.files.list(&layout.folder(slot)).unwrap_or_default();
        listed.into_iter().find(|entry| name.ends_with(&entry.name)).map(|entry| entry.len)
    });
    let mut record = match ports.files.read(&layout.record(), RECORD_BYTES_MAX) {
        // Whoever installs an agent puts it into a slot, and leaves the record to the agent.
        Ok(None) => recover(policy, lengths, ports).await,
        Ok(Some(bytes)) => match Record::decode(&bytes) {
            Ok(record) => record,
            Err(error) => {
                log::error!("{} cannot be used, {error}: it is set aside", layout.record().display());
                if let Err(error) = ports.files.rename(&layout.record(), &layout.record_aside()) {
                    log::error!("{error}");
                }
                recover(policy, lengths, ports).await
            }
        },
        Err(error) => {
            log::error!("{error}: {}", error.source);
            recover(policy, lengths, ports).await
        }
    };
    if policy.safe {
        record.give_up_walk();
    }
    if let Kind::Agent(launched) = &policy.kind {
        // What runs is there, whatever the books say of it.
        let slot = launched.slot;
        let [a, b] = lengths;
        let length = if slot == Slot::A { a } else { b };
        let booked = record.slots.content(slot).filter(|content| Some(content.length) == length);
        if booked.is_none_or(|content| content.version == UNKNOWN) {
            record.slots.set(slot, found(layout, slot, &launched.version, ports).await);
        }
        record.slots.active = record.slots.active.or(Some(slot));
    }
    record.slots.reconcile(lengths);
    if matches!(record.state, State::Downloading(_)) {
        prune(layout, ports);
    }
    record
}

/// Removes what has arrived of a download if it is too old to be gone on with.
fn prune(layout: &Layout, ports: &Ports) {
    let partial = layout.partial();
    let listed = partial.parent().and_then(|folder| ports.files.list(folder).ok()).unwrap_or_default();
    let Some(entry) = listed.into_iter().find(|entry| partial.ends_with(&entry.name)) else { return };
    let age = ports.clock.wall().as_millis().saturating_sub(entry.modified.as_millis());
    if u128::try_from(age).is_ok_and(|age| age > PARTIAL_AGE_MAX.as_millis()) {
        log::info!("{}: a download that was cut over 3 days ago begins anew", layout.product());
        discard(layout, ports);
    }
}

/// Removes what has arrived.
pub(super) fn discard(layout: &Layout, ports: &Ports) {
    for path in [layout.validator(), layout.partial(), layout.unpacked()] {
        if let Err(error) = ports.files.remove(&path) {
            log::error!("{error}: {}", error.source);
        }
    }
}

/// Whether something has arrived of a download.
pub(super) fn has_partial(layout: &Layout, ports: &Ports) -> bool {
    let partial = layout.partial();
    let listed = partial.parent().and_then(|folder| ports.files.list(folder).ok()).unwrap_or_default();
    listed.iter().any(|entry| partial.ends_with(&entry.name))
}

/// Removes what has arrived of anything else: there is room for one.
pub(super) fn discard_others(layout: &Layout, ports: &Ports) {
    let partial = layout.partial();
    let Some(folder) = partial.parent() else { return };
    let listed = ports.files.list(folder).unwrap_or_default();
    for entry in listed.into_iter().filter(|entry| !entry.name.starts_with(layout.product())) {
        if let Err(error) = ports.files.remove(&folder.join(&entry.name)) {
            log::error!("{error}: {}", error.source);
        }
    }
}

/// What the slots hold, without a record of it: what is there can be started, and its digest tells the next check which
/// version it is. A version that had to prove itself still has to.
async fn recover(policy: &Policy, lengths: [Option<u64>; 2], ports: &Ports) -> Record {
    let layout = &policy.layout;
    let mut record = Record::default();
    for (slot, length) in Slot::ALL.into_iter().zip(lengths) {
        if length.is_some() {
            record.slots.set(slot, found(layout, slot, UNKNOWN, ports).await);
        }
    }
    let pointer = ports.files.read(&layout.pointer(), RECORD_BYTES_MAX).ok().flatten();
    let pointer = pointer.and_then(|pointer| Pointer::read(&pointer));
    record.slots.active = pointer.map(|pointer| pointer.slot);
    let on_trial = match pointer {
        Some(pointer) => pointer.trial && record.slots.active().is_some(),
        // Nobody knows which of two machine servers is the proven one. An agent was chosen by its launcher.
        None => !policy.kind.is_agent() && record.slots.a.is_some() && record.slots.b.is_some(),
    };
    if on_trial {
        record.state = State::Probation { restarts: 0 };
    } else if let Some(reason) = went_back(policy, &record) {
        // What the launcher did is otherwise remembered by the record alone.
        record.state = State::Idle(Outcome::RolledBack);
        if let Some(failed) = record.slots.spare().cloned() {
            record.remember_bad(&failed);
        }
        record.reason = reason;
    }
    record
}

/// Why the launcher went back to the slot that the pointer names, if it did. What it tells of `--safe` is another matter.
fn went_back(policy: &Policy, record: &Record) -> Option<String> {
    let launched = policy.kind.launched()?;
    let note = launched.note.clone()?;
    (!policy.safe && record.slots.active == Some(launched.slot)).then_some(note)
}

/// What lies in a slot, by its bytes alone.
async fn found(layout: &Layout, slot: Slot, version: &str, ports: &Ports) -> Option<Installed> {
    match ports.files.digest(&layout.executable(slot)).await {
        Ok(digest) => {
            Some(Installed { version: version.to_owned(), sha256: digest.sha256, length: digest.len, pin: None })
        }
        Err(error) => {
            log::error!("{error}: {}", error.source);
            None
        }
    }
}
