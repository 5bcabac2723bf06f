//! Figures with their goals, as a table for people.

use std::fmt::Write as _;

/// The rows so far, in the order they were measured.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<[String; 4]>,
}

impl Table {
    /// One figure. `goal` is empty where none is set; `how` says what the figure is made of.
    pub(crate) fn row(&mut self, what: &str, figure: impl Into<String>, goal: &str, how: impl Into<String>) {
        let row = [what.to_owned(), figure.into(), goal.to_owned(), how.into()];
        eprintln!("{}: {}", row[0], row[1]);
        self.rows.push(row);
    }

    /// Nothing was measured yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table under a heading.
    pub(crate) fn markdown(&self, heading: &str) -> String {
        let mut text = format!("### {heading}\n\n| figure | value | goal | made of |\n|---|---|---|---|\n");
        for [what, figure, goal, how] in &self.rows {
            let _ = writeln!(text, "| {what} | {figure} | {goal} | {how} |");
        }
        text
    }
}

/// The date of a day counted from 1970-01-01 (days from civil, Howard Hinnant).
pub(crate) fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    format!("{}-{month:02}-{day:02}", year_of_era + era * 400 + u64::from(month <= 2))
}

/// 12345.6 → "12,300": three digits that mean something.
pub(crate) fn rounded(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let magnitude = 10f64.powf(value.log10().floor() - 2.0);
    let digits = format!("{:.0}", (value / magnitude).round() * magnitude);
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
