//! The rule that a zone follows after its last listed change: the `TZ` text of POSIX, with the hours of RFC 9636.
//!
//! `CET-1CEST,M3.5.0,M10.5.0/3`: standard time one hour east of UTC, summer time from the last Sunday of March, two
//! o'clock, to the last Sunday of October, three o'clock.

const DAY: i64 = 86_400;
const HOUR: i32 = 3_600;

/// One or two offsets and when they change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PosixRule {
    standard: i32,
    summer: Option<Summer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Summer {
    offset: i32,
    begins: Change,
    ends: Change,
}

/// A moment of the year by the local clock that is in force before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    day: Day,
    /// Seconds after midnight; negative or more than a day is allowed.
    time: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Day {
    /// `Jn`: 1 to 365, 29 February never counted.
    WithoutLeap(i64),
    /// `n`: 0 to 365.
    WithLeap(i64),
    /// `Mm.w.d`: weekday (0 is Sunday) of a week (5 is the last) of a month.
    OfMonth { month: i64, week: i64, weekday: i64 },
}

impl PosixRule {
    /// Reads the text; `None` when it is not such a rule.
    pub(super) fn parse(text: &str) -> Option<PosixRule> {
        let mut rest = text;
        skip_name(&mut rest)?;
        // POSIX counts hours west of Greenwich.
        let standard = -time(&mut rest)?;
        if rest.is_empty() {
            return Some(PosixRule { standard, summer: None });
        }
        skip_name(&mut rest)?;
        let offset = if rest.starts_with(',') { standard + HOUR } else { -time(&mut rest)? };
        let begins = change(&mut rest)?;
        let ends = change(&mut rest)?;
        rest.is_empty().then_some(PosixRule { standard, summer: Some(Summer { offset, begins, ends }) })
    }

    /// Seconds east of UTC at this second since 1970.
    pub(super) fn offset_at(&self, utc: i64) -> i32 {
        let Some(summer) = &self.summer else { return self.standard };
        let year = year_of(utc + i64::from(self.standard));
        let begins = summer.begins.in_year(year) - i64::from(self.standard);
        let ends = summer.ends.in_year(year) - i64::from(summer.offset);
        let is_summer = if begins < ends {
            (begins..ends).contains(&utc)
        } else {
            // South of the equator summer spans the turn of the year.
            !(ends..begins).contains(&utc)
        };
        if is_summer { summer.offset } else { self.standard }
    }
}

impl Change {
    /// Seconds of the local clock since 1970.
    fn in_year(self, year: i64) -> i64 {
        let new_year = days_before_year(year);
        let leap = i64::from(is_leap(year));
        let day = match self.day {
            Day::WithoutLeap(day) => new_year + day - 1 + if day > 59 { leap } else { 0 },
            Day::WithLeap(day) => new_year + day,
            Day::OfMonth { month, week, weekday } => {
                let first = new_year + days_before_month(month, leap);
                // 1970-01-01 was a Thursday, day 4 from Sunday.
                let first_match = first + (weekday - (first + 4)).rem_euclid(7);
                let next_month = new_year + days_before_month(month + 1, leap);
                let wanted = first_match + (week - 1) * 7;
                if wanted >= next_month { wanted - 7 } else { wanted }
            }
        };
        day * DAY + i64::from(self.time)
    }
}

/// A name: letters, or anything between angle brackets.
fn skip_name(rest: &mut &str) -> Option<()> {
    let length = if rest.starts_with('<') {
        rest.find('>')? + 1
    } else {
        rest.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(rest.len())
    };
    (length >= 3).then_some(())?;
    *rest = rest.get(length..)?;
    Some(())
}

/// `[+-]h[h[h]][:mm[:ss]]` in seconds; up to 167 hours.
fn time(rest: &mut &str) -> Option<i32> {
    let sign = match rest.as_bytes().first()? {
        b'-' => -1,
        _ => 1,
    };
    *rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let mut seconds = i32::try_from(number(rest, 167)?).ok()? * HOUR;
    for unit in [60, 1] {
        let Some(after) = rest.strip_prefix(':') else { break };
        *rest = after;
        seconds += i32::try_from(number(rest, 59)?).ok()? * unit;
    }
    Some(sign * seconds)
}

/// `,day[/time]`
fn change(rest: &mut &str) -> Option<Change> {
    *rest = rest.strip_prefix(',')?;
    let day = if let Some(after) = rest.strip_prefix('J') {
        *rest = after;
        Day::WithoutLeap(number(rest, 365).filter(|day| *day >= 1)?)
    } else if let Some(after) = rest.strip_prefix('M') {
        *rest = after;
        let month = number(rest, 12).filter(|month| *month >= 1)?;
        *rest = rest.strip_prefix('.')?;
        let week = number(rest, 5).filter(|week| *week >= 1)?;
        *rest = rest.strip_prefix('.')?;
        Day::OfMonth { month, week, weekday: number(rest, 6)? }
    } else {
        Day::WithLeap(number(rest, 365)?)
    };
    let time = match rest.strip_prefix('/') {
        Some(after) => {
            *rest = after;
            time(rest)?
        }
        None => 2 * HOUR,
    };
    Some(Change { day, time })
}

fn number(rest: &mut &str, most: i64) -> Option<i64> {
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let value = rest.get(..digits)?.parse().ok().filter(|value| *value <= most)?;
    *rest = rest.get(digits..)?;
    Some(value)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days from 1970-01-01 to the first of January of `year`.
fn days_before_year(year: i64) -> i64 {
    let before = year - 1;
    365 * (year - 1970) + (before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400)) - 477
}

/// Days of a year before a month; month 13 is the next year's January.
fn days_before_month(month: i64, leap: i64) -> i64 {
    const LENGTHS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let months = usize::try_from(month - 1).unwrap_or(0);
    LENGTHS.iter().take(months).sum::<i64>() + if month > 2 { leap } else { 0 }
}

/// The year in which this second of a local clock lies.
fn year_of(local: i64) -> i64 {
    let day = local.div_euclid(DAY);
    // A good guess, then at most one step: the mean year has 365.2425 days.
    let guess = 1970 + (day * 10_000).div_euclid(3_652_425);
    (guess - 1..=guess + 1).rev().find(|year| days_before_year(*year) <= day).unwrap_or(guess)
}
