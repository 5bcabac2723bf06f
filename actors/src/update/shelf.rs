//! What is stored about the slots, compared with what is in them.

use super::{
    actor::Ports,
    record::{RECORD_BYTES_MAX, Record},
    slots::{Installed, Layout, Slot, read_pointer},
};

/// What is stored, compared with what is there.
pub(super) async fn load(layout: &Layout, ports: &Ports) -> Record {
    let lengths = Slot::ALL.map(|slot| {
        let name = layout.executable(slot);
        let listed = ports.files.list(&layout.folder(slot)).unwrap_or_default();
        listed.into_iter().find(|entry| name.ends_with(&entry.name)).map(|entry| entry.len)
    });
    let mut record = match ports.files.read(&layout.record(), RECORD_BYTES_MAX) {
        Ok(None) => Record::default(),
        Ok(Some(bytes)) => match Record::decode(&bytes) {
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
    record.slots.reconcile(lengths);
    record
}

/// What the slots hold, without a record of it: what is there can be started, and its digest tells the next check which
/// version it is.
async fn recover(layout: &Layout, lengths: [Option<u64>; 2], ports: &Ports) -> Record {
    let mut record = Record::default();
    for (slot, length) in Slot::ALL.into_iter().zip(lengths) {
        if length.is_none() {
            continue;
        }
        match ports.files.digest(&layout.executable(slot)).await {
            Ok(digest) => {
                let version = "unknown".to_owned();
                let content = Installed { version, sha256: digest.sha256, length: digest.len, pin: None };
                record.slots.set(slot, Some(content));
            }
            Err(error) => log::error!("{error}: {}", error.source),
        }
    }
    let pointer = ports.files.read(&layout.pointer(), RECORD_BYTES_MAX).ok().flatten();
    record.slots.active = pointer.and_then(|pointer| read_pointer(&pointer));
    record
}
