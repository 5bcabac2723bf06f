//! Which slot takes the executable that is to be installed. Decides and writes nothing.

use actors::update::{
    record::Record,
    slots::{Installed, Slot},
};

use super::is_newer;

/// What is to be done with the slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The active slot holds this very executable.
    Keep,
    /// The spare slot takes it and becomes active; what ran before stays as the way back.
    Place,
    /// The same, and what is installed is newer.
    Older {
        /// The version in the active slot.
        installed: String,
    },
}

/// Compares what is there with what is to be there. The record says what the slots really hold.
#[must_use]
pub(super) fn plan(record: &Record, content: &Installed) -> Plan {
    match record.slots.active() {
        Some(active) if active.sha256 == content.sha256 => Plan::Keep,
        Some(active) if is_newer(&active.version, &content.version) => {
            Plan::Older { installed: active.version.clone() }
        }
        Some(_) | None => Plan::Place,
    }
}

impl Plan {
    /// The slot to be written, if any.
    #[must_use]
    pub(super) fn slot(&self, record: &Record) -> Option<Slot> {
        match self {
            Plan::Keep => None,
            Plan::Place | Plan::Older { .. } => Some(record.slots.spare_slot()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actors::update::slots::Slots;

    fn content(version: &str, byte: u8) -> Installed {
        Installed { version: version.into(), sha256: [byte; 32], length: 1, pin: None }
    }

    #[test]
    fn the_spare_slot_takes_what_is_new() {
        let ours = content("1.1.0", 1);
        let with = |active, a, b| Record { slots: Slots { active, a, b }, ..Record::default() };
        let older = |installed: &str| Plan::Older { installed: installed.into() };
        let table = [
            // case                     before                                                       plan           slot
            ("nothing is installed", with(None, None, None), Plan::Place, Some(Slot::A)),
            ("the same", with(Some(Slot::B), None, Some(ours.clone())), Plan::Keep, None),
            ("an older one", with(Some(Slot::A), Some(content("1.0.0", 2)), None), Plan::Place, Some(Slot::B)),
            ("other bytes", with(Some(Slot::B), None, Some(content("1.1.0", 2))), Plan::Place, Some(Slot::A)),
            ("a newer one", with(Some(Slot::A), Some(content("1.2.0", 2)), None), older("1.2.0"), Some(Slot::B)),
            (
                "a later test version",
                with(Some(Slot::A), Some(content("1.1.0-rc.1", 2)), None),
                Plan::Place,
                Some(Slot::B),
            ),
            (
                "one of no known version",
                with(Some(Slot::A), Some(content("unknown", 2)), None),
                Plan::Place,
                Some(Slot::B),
            ),
            (
                "the same as spare of an older one",
                with(Some(Slot::A), Some(content("1.0.0", 2)), Some(ours.clone())),
                Plan::Place,
                Some(Slot::B),
            ),
        ];
        for (case, before, expected, slot) in table {
            let plan = plan(&before, &ours);
            assert_eq!(plan, expected, "{case}");
            assert_eq!(plan.slot(&before), slot, "{case}");
        }
    }
}
