//! The windows by the zone files of this system.

use std::{cell::RefCell, ops::Range, rc::Rc};

use api::device_config::Maintenance;
use board::{Wall, files::Files};

use super::{Calendar, Opening, WindowState, Windows, ZONE_FILE_BYTES_MAX, zone_file};

/// Looks zones up once per change of the setting, and the next opening once per closing: to look through a week takes
/// milliseconds, and the machine server's keeper asks in the moment in which a dead one has to be started again.
pub struct SystemWindows {
    files: Rc<dyn Files>,
    known: RefCell<Option<Known>>,
}

struct Known {
    maintenance: Maintenance,
    calendar: Calendar,
    trouble: Vec<String>,
    shut: Option<Shut>,
}

/// What was seen when this was looked at, good until the end.
#[derive(Clone)]
struct Shut {
    good: Range<Wall>,
    opens: Option<Wall>,
}

/// As long as a sight without any opening is good; it reaches further than this.
const NOTHING_OPENS_MILLIS: i64 = 24 * 3_600_000;

impl SystemWindows {
    /// Reads zone files from `files`.
    #[must_use]
    pub fn new(files: Rc<dyn Files>) -> Self {
        SystemWindows { files, known: RefCell::default() }
    }

    fn look_up(&self, maintenance: &Maintenance) -> Known {
        let (calendar, unknown) =
            Calendar::new(maintenance, |zone| self.files.read(&zone_file(zone), ZONE_FILE_BYTES_MAX).ok().flatten());
        let sentence = |zone: String| {
            format!(
                "this system does not know the time zone {zone}: maintenance windows in it stay shut. \
                 Install the zone database (package tzdata) or name another zone"
            )
        };
        let trouble: Vec<_> = unknown.into_iter().map(sentence).collect();
        trouble.iter().for_each(|sentence| log::warn!("{sentence}"));
        Known { maintenance: maintenance.clone(), calendar, trouble, shut: None }
    }
}

impl Windows for SystemWindows {
    fn look(&self, maintenance: &Maintenance, at: Wall) -> WindowState {
        let mut known = self.known.borrow_mut();
        // With what was seen ends what was read: zones are changed and installed while the agent runs.
        let is_good = |known: &Known| known.shut.as_ref().is_none_or(|shut| shut.good.contains(&at));
        let same = known.take().filter(|known| known.maintenance == *maintenance && is_good(known));
        let known = known.insert(same.unwrap_or_else(|| self.look_up(maintenance)));
        if let Some(Shut { opens, .. }) = known.shut {
            return WindowState { open: false, changes: opens };
        }
        match known.calendar.at(at) {
            Opening::Open => {
                known.shut = None;
                WindowState { open: true, changes: None }
            }
            Opening::Shut { until: opens } => {
                let later = Wall::from_millis(at.as_millis().saturating_add(NOTHING_OPENS_MILLIS));
                known.shut = Some(Shut { good: at..opens.unwrap_or(later), opens });
                WindowState { open: false, changes: opens }
            }
        }
    }

    fn trouble(&self) -> Vec<String> {
        self.known.borrow().as_ref().map(|known| known.trouble.clone()).unwrap_or_default()
    }
}
