//! What is stored about the slots, compared with what is in them; and a download that nobody goes on with.

use std::time::Duration;

use super::{
    actor::Ports,
    kind::Kind,
    machine::Policy,
    record::{RECORD_BYTES_MAX, Record, State},
    slots::{Installed, Layout, Pointer, Slot, Slots},
};

/// What has arrived of a download is given up when nothing was added to it for this long: a small disk needs the room.
const PARTIAL_AGE_MAX: Duration = Duration::from_secs(3 * 24 * 3600);

/// What a version is called whose bytes are there and whose name is not.
const UNKNOWN: &str = "unknown";

/// What is stored, compared with what is there.
pub(super) async fn load(policy: &Policy, ports: &Ports) -> Record {
    let layout = &policy.layout;
    let lengths = Slot::ALL.map(|slot| {
        let name = layout.executable(slot);
        let listed = ports.files.list(&layout.folder(slot)).unwrap_or_default();
        listed.into_iter().find(|entry| name.ends_with(&entry.name)).map(|entry| entry.len)
    });
    let mut record = match ports.files.read(&layout.record(), RECORD_BYTES_MAX) {
        // Whoever installs an agent puts it into a slot, and leaves the record to the agent. One that had to begin with
        // `--safe` has set it aside.
        Ok(None) => recover(layout, lengths, ports).await,
        Ok(Some(bytes)) => match Record::decode(&bytes) {
            Ok(record) if record.state == State::default() && record.slots == Slots::default() => {
                Record { slots: recover(layout, lengths, ports).await.slots, ..record }
            }
            Ok(record) => record,
            Err(error) => {
                log::error!("{} cannot be used, {error}: it is set aside", layout.record().display());
                if let Err(error) = ports.files.rename(&layout.record(), &layout.record_aside()) {
                    log::error!("{error}");
                }
                recover(layout, lengths, ports).await
            }
        },
        Err(error) => {
            log::error!("{error}: {}", error.source);
            recover(layout, lengths, ports).await
        }
    };
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
/// version it is.
async fn recover(layout: &Layout, lengths: [Option<u64>; 2], ports: &Ports) -> Record {
    let mut record = Record::default();
    for (slot, length) in Slot::ALL.into_iter().zip(lengths) {
        if length.is_some() {
            record.slots.set(slot, found(layout, slot, UNKNOWN, ports).await);
        }
    }
    let pointer = ports.files.read(&layout.pointer(), RECORD_BYTES_MAX).ok().flatten();
    record.slots.active = pointer.and_then(|pointer| Pointer::read(&pointer)).map(|pointer| pointer.slot);
    record
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
