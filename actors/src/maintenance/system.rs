//! The windows by the zone files of this system.

use std::{cell::RefCell, rc::Rc};

use api::device_config::Maintenance;
use board::{Wall, files::Files};

use super::{Calendar, Opening, ZONE_FILE_BYTES_MAX, zone_file};
use crate::server::{WindowState, Windows};

/// Looks zones up once per change of the setting, not once per question.
pub struct SystemWindows {
    files: Rc<dyn Files>,
    known: RefCell<Option<(Maintenance, Calendar)>>,
}

impl SystemWindows {
    /// Reads zone files from `files`.
    #[must_use]
    pub fn new(files: Rc<dyn Files>) -> Self {
        SystemWindows { files, known: RefCell::default() }
    }

    fn calendar(&self, maintenance: &Maintenance) -> Calendar {
        if let Some((known, calendar)) = &*self.known.borrow()
            && known == maintenance
        {
            return calendar.clone();
        }
        let (calendar, unknown) =
            Calendar::new(maintenance, |zone| self.files.read(&zone_file(zone), ZONE_FILE_BYTES_MAX).ok().flatten());
        for zone in unknown {
            log::warn!(
                "this system does not know the time zone {zone}: maintenance windows in it stay shut. \
                 Install the zone database (package tzdata) or name another zone"
            );
        }
        *self.known.borrow_mut() = Some((maintenance.clone(), calendar.clone()));
        calendar
    }
}

impl Windows for SystemWindows {
    fn look(&self, maintenance: &Maintenance, at: Wall) -> WindowState {
        let calendar = self.calendar(maintenance);
        match calendar.at(at) {
            Opening::Open => WindowState { open: true, changes: None },
            Opening::Shut { until } => WindowState { open: false, changes: until },
        }
    }
}
