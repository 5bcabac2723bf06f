//! What a reader asks of a part's log, checked once; and the page that answers.
//!
//! The filter is a part of the message, whatever case either is written in. A source is a logger by its whole name or by the
//! words before a dot in it: `platform-agent` is all of the agent, `platform-agent.update` a part of it. Start and end are both included. A page
//! token names the last entry that was given, and is bound to the part and to everything that chooses or orders
//! entries: with another question it is refused, because it would silently skip or repeat.

use api::pb::platform::{
    app::v1::{GetRobotPartLogsRequest, LogOrder},
    common::v1::LogEntry,
};

use super::{
    block::NAME_MAX_BYTES,
    level::Levels,
    order::{Order, Place},
};
use crate::{clock::Millis, clock::millis, refusal::Refusal};

/// A page, if the reader does not say: what the clients gather by default.
pub const PAGE_DEFAULT: usize = 100;
/// The largest page.
pub const PAGE_MAX: usize = 1_000;
/// A page in bytes: below the 4 MiB that gRPC clients take, with room for entries that are at their limit.
pub const PAGE_MAX_BYTES: usize = 2 << 20;
/// Longer filters find nothing in messages that people read.
pub const FILTER_MAX_BYTES: usize = 1_024;
/// There are nine levels.
const LEVELS_MAX: usize = 32;

/// Which entries, in which order, from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Which entries.
    pub wanted: Wanted,
    /// In which order.
    pub order: Order,
    /// Not before this one, in the order asked for.
    pub after: Option<Place>,
    /// How many.
    pub page: usize,
    /// What a token for the next page is bound to.
    binding: String,
}

/// Which entries a reader wants; the same for pages and for following.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Their levels.
    pub levels: Levels,
    /// Words of the levels that have no bit of their own, in lower case.
    other_levels: Vec<String>,
    /// Part of the message, in lower case; empty lets all pass.
    filter: String,
    /// A logger and those below it; empty lets all pass.
    source: String,
    /// Earliest and latest time, both included.
    pub from: Millis,
    /// See `from`.
    pub to: Millis,
}

/// One page.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The entries in the order asked for.
    pub entries: Vec<LogEntry>,
    /// For the next page; empty at the end, and never beside no entries.
    pub next: String,
}

impl Wanted {
    /// From what a reader names; `errors_only` counts where no level is named.
    pub fn new(levels: &[String], errors_only: bool, filter: Option<&str>) -> Result<Self, Refusal> {
        if levels.len() > LEVELS_MAX {
            return Err(Refusal::invalid(
                "levels",
                format!("has {} entries: at most {LEVELS_MAX} can be named", levels.len()),
            ));
        }
        let filter = filter.unwrap_or_default();
        if filter.len() > FILTER_MAX_BYTES {
            return Err(Refusal::invalid(
                "filter",
                format!("has {} bytes: at most {FILTER_MAX_BYTES} are allowed", filter.len()),
            ));
        }
        let named: Vec<&str> = levels.iter().map(String::as_str).filter(|level| !level.is_empty()).collect();
        let bits = match named.is_empty() {
            true if errors_only => Levels::ERRORS,
            _ => Levels::named(named.iter().copied()),
        };
        let other_levels = named.iter().map(|level| level.to_lowercase()).collect();
        Ok(Self {
            levels: bits,
            other_levels,
            filter: filter.to_lowercase(),
            source: String::new(),
            from: Millis::MIN,
            to: Millis::MAX,
        })
    }

    /// Only from this logger and those below it.
    pub fn from_source(self, source: &str) -> Result<Self, Refusal> {
        if source.len() > NAME_MAX_BYTES {
            return Err(Refusal::unfit("source", source, format!("give a logger: at most {NAME_MAX_BYTES} bytes")));
        }
        Ok(Self { source: source.to_owned(), ..self })
    }

    /// Whether a reader wants this entry, its time apart.
    pub fn admits(&self, entry: &LogEntry) -> bool {
        let level = Levels::of(&entry.level);
        let level_fits = self.levels.meet(level)
            && (self.levels == Levels::ANY
                || level != Levels::of("")
                || self.other_levels.contains(&entry.level.to_lowercase()));
        let below =
            |name: &str| name.strip_prefix(&*self.source).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        level_fits && (self.source.is_empty() || below(&entry.logger_name)) && self.passes(&entry.message)
    }

    /// Whether a message has the filter in it.
    pub fn passes(&self, message: &str) -> bool {
        contains(message, &self.filter)
    }

    /// Whether every message passes.
    pub fn is_unfiltered(&self) -> bool {
        self.filter.is_empty()
    }

    /// Whether it lies in the time asked for.
    pub fn spans(&self, at: Millis) -> bool {
        (self.from..=self.to).contains(&at)
    }
}

/// Whether `text` contains `part` (already in lower case), whatever case `text` is in.
fn contains(text: &str, part: &str) -> bool {
    if part.is_empty() {
        return true;
    }
    if let (true, Some(first)) = (text.is_ascii() && part.is_ascii(), part.as_bytes().first()) {
        let (text, part) = (text.as_bytes(), part.as_bytes());
        let fits = |at: usize| text.get(at..at + part.len()).is_some_and(|there| there.eq_ignore_ascii_case(part));
        return memchr::memchr2_iter(*first, first.to_ascii_uppercase(), text).any(fits);
    }
    text.to_lowercase().contains(part)
}

impl Query {
    /// Checks a request. `now` anchors a range that names neither start nor end.
    pub fn read(request: &GetRobotPartLogsRequest, now: Millis) -> Result<Self, Refusal> {
        if request.user_facing_only == Some(true) {
            return Err(Refusal::invalid("user_facing_only", "is true: this is not supported, leave it out"));
        }
        #[expect(deprecated, reason = "older clients still send errors_only instead of levels")]
        let errors_only = request.errors_only;
        let wanted = Wanted::new(&request.levels, errors_only, request.filter.as_deref())?;
        let mut wanted = wanted.from_source(request.source.as_deref().unwrap_or_default())?;
        (wanted.from, wanted.to) = span(request, now)?;
        let order = match request.order.map(LogOrder::try_from) {
            None | Some(Ok(LogOrder::Unspecified | LogOrder::Descending)) => Order::Falling,
            Some(Ok(LogOrder::Ascending)) => Order::Rising,
            Some(Err(odd)) => return Err(Refusal::unfit("order", odd.0, "give 1 (ascending) or 2 (descending)")),
        };
        let page = match request.limit {
            None | Some(0) => PAGE_DEFAULT,
            Some(limit @ 1..) => usize::try_from(limit).unwrap_or(PAGE_MAX).min(PAGE_MAX),
            Some(odd) => return Err(Refusal::unfit("limit", odd, "give 0 (for our choice) or more")),
        };
        let binding = binding(request, errors_only);
        let after = match request.page_token.as_deref().unwrap_or_default() {
            "" => None,
            token => Some(read_token(token, &binding).ok_or_else(|| {
                Refusal::unfit(
                    "page_token",
                    token,
                    "it does not belong to this part and filter, start again without one",
                )
            })?),
        };
        Ok(Self { wanted, order, after, page, binding })
    }

    /// Whether an entry comes after the page token.
    pub fn is_due(&self, place: Place) -> bool {
        match (self.after, self.order) {
            (None, _) => true,
            (Some(after), Order::Falling) => place < after,
            (Some(after), Order::Rising) => place > after,
        }
    }

    /// The token that continues after `place`.
    pub fn token(&self, place: Place) -> String {
        format!("{}.{}.{}.{}", place.at, place.block, place.index, self.binding)
    }
}

fn read_token(token: &str, binding: &str) -> Option<Place> {
    let mut parts = token.splitn(4, '.');
    let mut number = || parts.next()?.parse::<i64>().ok();
    let place = Place { at: number()?, block: number()?, index: number()? };
    (parts.next()? == binding).then_some(place)
}

/// A digest of everything that must stay the same from page to page. The words of the request rather than what they
/// came to: a range that is counted from now moves on, and that does no harm.
fn binding(request: &GetRobotPartLogsRequest, errors_only: bool) -> String {
    let GetRobotPartLogsRequest { id, filter, levels, start, end, order, range, source, .. } = request;
    let [filter, source] = [filter, source].map(|text| text.as_deref().unwrap_or_default());
    let text = format!("{:?}", (id, errors_only, filter, levels, start, end, order, range, source));
    crate::compose::revision(&text)[..16].to_owned()
}

/// Earliest and latest time asked for. A range is counted from whichever end is given, or back from now.
fn span(request: &GetRobotPartLogsRequest, now: Millis) -> Result<(Millis, Millis), Refusal> {
    let start = request.start.as_ref().map(millis);
    let end = request.end.as_ref().map(millis);
    let range = match request.range.as_deref().unwrap_or_default() {
        "" => None,
        text => Some(
            duration(text)
                .ok_or_else(|| Refusal::unfit("range", text, "give a duration such as 30s, 10m, 10h or 10d"))?,
        ),
    };
    match (start, end, range) {
        (Some(_), Some(_), Some(_)) => {
            Err(Refusal::invalid("range", "is given beside both a start and an end: leave one of the three out"))
        }
        (Some(start), Some(end), None) if start > end => {
            Err(Refusal::invalid("end", "is before the start: exchange them"))
        }
        (Some(start), None, Some(range)) => Ok((start, start.saturating_add(range))),
        (None, Some(end), Some(range)) => Ok((end.saturating_sub(range), end)),
        (None, None, Some(range)) => Ok((now.saturating_sub(range), Millis::MAX)),
        (start, end, None) => Ok((start.unwrap_or(Millis::MIN), end.unwrap_or(Millis::MAX))),
    }
}

/// `10m`, `1h30m`, `10d`; at most a hundred years.
fn duration(text: &str) -> Option<Millis> {
    let mut total: Millis = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let mut tail = tail.chars();
        let unit = match tail.next()? {
            's' => 1_000,
            'm' => 60_000,
            'h' => 3_600_000,
            'd' => 86_400_000,
            'w' => 604_800_000,
            _ => return None,
        };
        total = total.checked_add(number.parse::<Millis>().ok()?.checked_mul(unit)?)?;
        rest = tail.as_str();
    }
    (1..=36_525 * 86_400_000).contains(&total).then_some(total)
}
