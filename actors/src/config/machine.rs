//! Decides which settings are in force: cached → fetched → accepted or refused.
//!
//! Owns the documents of the sources as they came and what was accepted of them. Every event that changes a document
//! reads all of them again, so the outcome depends on the documents and never on the order in which they came. What the
//! cloud said of one part is forgotten, accepted values too, as soon as this device turns out to be another one.

use std::{rc::Rc, time::Duration};

use api::device_config::{Accepted, CommandLine, Settings, Source, Sources, limits::DOCUMENT_BYTES_MAX, read};
use board::Mono;
use prost::Message as _;

use super::{ConfigStatus, cache::Kept, diff::Changed};
use crate::cloud::FetchedConfig;

/// After this a refused store is tried again: a full disk is seldom emptied sooner, and each try costs a write.
pub const STORE_RETRY: Duration = Duration::from_secs(60);

/// The manufacturer's defaults file, unread.
pub type Defaults = Source<Rc<[u8]>>;

/// What happens to the configuration.
#[derive(Clone, Debug)]
pub enum Event {
    /// The agent starts, with what it kept and what the manufacturer says.
    Started {
        /// From the last life; `None` on a new device.
        kept: Option<Kept>,
        /// The file.
        defaults: Defaults,
        /// The part that this device is; `None` while nobody can say, and then it is who it was.
        part_id: Option<String>,
    },
    /// The cloud has sent a configuration.
    Fetched(Rc<FetchedConfig>),
    /// Somebody wants the defaults file to be read again.
    ReloadWanted,
    /// It was.
    DefaultsRead(Defaults),
    /// What was to be stored is, or why not.
    Stored(Result<(), Rc<str>>),
    /// The deadline has passed.
    DeadlinePassed,
}

/// What is to be done, in this order.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Read the defaults file.
    ReadDefaults,
    /// Keep this across a restart.
    Store(Kept),
    /// Let the others know.
    Publish(Box<Publication>),
}

/// What the others shall know.
#[derive(Clone, Debug)]
pub struct Publication {
    /// In force.
    pub settings: Settings,
    /// The sections that are news.
    pub changed: Changed,
    /// How the configuration itself is.
    pub status: ConfigStatus,
}

/// Store and publish are the most that one event can want.
pub type Effects = heapless::Vec<Effect, 2>;

/// Settings in force and where they come from.
pub struct Machine {
    command_line: CommandLine,
    defaults: Defaults,
    /// The last answer of the cloud that could be taken.
    cloud: Option<Rc<FetchedConfig>>,
    /// Why the newest answer could not be taken as a whole.
    refused: Option<String>,
    accepted: Accepted,
    in_force: Option<Settings>,
    status: ConfigStatus,
    storing: Storing,
}

/// Whether the disk knows what is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storing {
    Done,
    /// It does not; it will be told again at this moment.
    Due(Mono),
}

impl Machine {
    /// Before the start; nothing is in force.
    #[must_use]
    pub fn new(command_line: CommandLine) -> Machine {
        Machine {
            command_line,
            defaults: Source::Absent,
            cloud: None,
            refused: None,
            accepted: Accepted::default(),
            in_force: None,
            status: ConfigStatus::default(),
            storing: Storing::Done,
        }
    }

    /// The only place where anything changes.
    pub fn step(&mut self, now: Mono, event: Event) -> Effects {
        match event {
            Event::Started { kept, defaults, part_id } => {
                let Kept { accepted, cloud } = kept.unwrap_or_default();
                (self.accepted, self.cloud, self.defaults) = (accepted, cloud, defaults);
                let forgotten = part_id.is_some_and(|part_id| self.forget_others(&part_id));
                self.read_again(now, forgotten)
            }
            Event::Fetched(fetched) => self.fetched(now, fetched),
            Event::ReloadWanted => effects([Effect::ReadDefaults]),
            Event::DefaultsRead(defaults) => {
                self.defaults = defaults;
                self.read_again(now, false)
            }
            Event::Stored(outcome) => {
                self.storing = if outcome.is_ok() { Storing::Done } else { Storing::Due(now + STORE_RETRY) };
                let status = ConfigStatus { trouble: outcome.err(), ..self.status.clone() };
                self.publish(self.in_force.clone(), status)
            }
            Event::DeadlinePassed => match self.storing {
                Storing::Due(at) if at <= now => self.store(now),
                Storing::Due(_) | Storing::Done => effects([]),
            },
        }
    }

    /// The moment at which a store is tried again.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        match self.storing {
            Storing::Due(at) => Some(at),
            Storing::Done => None,
        }
    }

    fn fetched(&mut self, now: Mono, fetched: Rc<FetchedConfig>) -> Effects {
        let forgotten = self.forget_others(&fetched.part_id);
        let bytes = fetched.response.encoded_len();
        if bytes > DOCUMENT_BYTES_MAX {
            // It is neither read nor kept: what would not fit the disk must not be in force either.
            self.refused = Some(format!("{bytes} bytes, more than the {DOCUMENT_BYTES_MAX} that are allowed"));
            return self.read_again(now, forgotten);
        }
        let known = self.cloud.as_ref().is_some_and(|cloud| cloud.is(&fetched));
        if known && self.refused.is_none() {
            return effects([]);
        }
        self.refused = None;
        self.cloud = Some(fetched);
        self.read_again(now, !known)
    }

    /// Forgets what the cloud said of another part; says whether there was anything.
    fn forget_others(&mut self, part_id: &str) -> bool {
        let forgets = self.cloud.as_ref().is_some_and(|cloud| *cloud.part_id != *part_id);
        if forgets {
            (self.cloud, self.refused) = (None, None);
            self.accepted = std::mem::take(&mut self.accepted).without_cloud();
        }
        forgets
    }

    fn read_again(&mut self, now: Mono, news_to_keep: bool) -> Effects {
        let sources = Sources {
            defaults: match &self.defaults {
                Source::Absent => Source::Absent,
                Source::Given(text) => Source::Given(&**text),
                Source::Unreadable(why) => Source::Unreadable(why.clone()),
            },
            cloud: match (&self.refused, &self.cloud) {
                (Some(why), _) => Source::Unreadable(why.clone()),
                (None, Some(cloud)) => Source::Given(&*cloud.response),
                (None, None) => Source::Absent,
            },
            command_line: self.command_line,
        };
        let reading = read(&sources, &self.accepted);
        let news_to_keep = news_to_keep || reading.accepted != self.accepted;
        self.accepted = reading.accepted;
        let status = ConfigStatus {
            applied_revision: self.cloud.as_ref().map(|cloud| cloud.revision),
            complaints: reading.complaints.into(),
            trouble: self.status.trouble.clone(),
        };
        let mut wanted = if news_to_keep { self.store(now) } else { effects([]) };
        wanted.extend(self.publish(Some(reading.settings), status));
        wanted
    }

    /// Until it is done it is due: the answer moves the moment or takes it away.
    fn store(&mut self, now: Mono) -> Effects {
        self.storing = Storing::Due(now + STORE_RETRY);
        effects([Effect::Store(Kept { accepted: self.accepted.clone(), cloud: self.cloud.clone() })])
    }

    /// Says what is news, if anything is.
    fn publish(&mut self, settings: Option<Settings>, status: ConfigStatus) -> Effects {
        let Some(settings) = settings else { return effects([]) };
        let changed = Changed::between(self.in_force.as_ref(), &settings);
        if !changed.any() && status == self.status {
            return effects([]);
        }
        self.in_force = Some(settings.clone());
        self.status = status.clone();
        effects([Effect::Publish(Box::new(Publication { settings, changed, status }))])
    }
}

fn effects<const N: usize>(list: [Effect; N]) -> Effects {
    const { assert!(N <= 2) }
    list.into_iter().collect()
}
