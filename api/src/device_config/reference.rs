//! The reference page of all settings, made from the table.
//!
//! Built for tests only; `docs/config.md` is compared with it and rewritten with `UPDATE_DOCS=1`.

use super::{
    fields::{ANY, Builtin, FIELDS, Field, Setter},
    leaf::allowed,
    limits,
    read::SECTIONS,
};
use std::fmt::Write as _;

/// The page as markdown.
pub fn page() -> String {
    let mut page = String::from(INTRODUCTION);
    for section in SECTIONS {
        let _ = writeln!(page, "\n## {section}\n");
        if section == "additional_networks" {
            page.push_str("An object: each key is a name of your choice, each value an object with these fields.\n\n");
        }
        page.push_str("| field | allowed | default | set by | meaning |\n|---|---|---|---|---|\n");
        for field in FIELDS.iter().filter(|field| field.path.first() == Some(&section)) {
            page.push_str(&row(field));
        }
    }
    let _ = write!(page, "{}", closing());
    page
}

const INTRODUCTION: &str = "\
<!-- Generated from api/src/device_config/fields.rs by `make docs`. Do not edit. -->

# Settings of a device

One JSON object with these sections, all optional: under the key `agent` in a machine's configuration, and as the whole
content (or under `agent`) of the manufacturer's defaults file.

Sources, later wins field by field: built in, defaults file, cloud, command line. Networks and environment variables are
merged entry by entry. `null` unsets what that source says; zero and empty text are values like any other.

A value that is not allowed costs that value only. What this source said before stays in force, also across a restart;
without that the manufacturer's value, without that the default. It is reported to the log and to the fleet server by
path, with what was found and what is allowed. Names that are not in this reference are ignored and reported.
`platform config check FILE` says the same before a device does.
";

fn closing() -> String {
    format!(
        "
### Windows of `maintenance`

```json
{{\"maintenance\": {{\"windows\": [{{\"days\": [\"sat\", \"sun\"], \"from\": \"22:30\", \"to\": \"04:00\", \"tz\": \"Europe/Berlin\"}}]}}}}
```

`days` (default: all) are those on which the window opens; `to` before `from` ends on the next day; a whole day is `00:00`
to `24:00`. `tz` (default `local`) is the device's own clock or a name of its zone database.

## Limits

| limit | value |
|---|---|
| document of one source | {} bytes |
| objects and lists inside each other | {} |
| networks, all sources together | {} |
| name of a network | {} bytes |
| environment variables, all sources together | {} |
| their names and values together | {} bytes |
| complaints shown at a time | {} |
",
        limits::DOCUMENT_BYTES_MAX,
        limits::DOCUMENT_DEPTH_MAX,
        limits::NETWORKS_MAX,
        limits::NETWORK_NAME_BYTES_MAX,
        limits::ENV_ENTRIES_MAX,
        limits::ENV_BYTES_MAX,
        limits::COMPLAINTS_MAX,
    )
}

fn row(field: &Field) -> String {
    let names: Vec<_> = field.path.iter().skip(1).filter(|name| **name != ANY).copied().collect();
    let builtin = match field.builtin {
        Builtin::Unset => "unset".to_owned(),
        Builtin::Flag(flag) => format!("`{flag}`"),
        Builtin::Integer(number) => format!("`{number}`"),
        Builtin::Text(text) => format!("`\"{text}\"`"),
    };
    let setter = match field.setter {
        Setter::Everyone => "everybody",
        Setter::Manufacturer => "manufacturer",
    };
    format!("| `{}` | {} | {builtin} | {setter} | {} |\n", names.join("."), allowed(field.form), field.doc)
}
