//! `part config` and `config check`: a device's configuration as a whole.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use api::{
    brand,
    device_config::{self, Origin},
    pb::platform::app::v1::RobotPart,
};
use clap::Subcommand;
use prost_types::Timestamp;
use serde_json::{Value, json};

use super::{
    part::{Which, Whose},
    read_text,
};
use crate::{
    configuration::{Configuration, Unacceptable},
    failure::Failure,
    output::{Output, plain},
    session::Session,
    when::moment,
};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Print it
    Get(Which),
    /// Replace it
    Set {
        /// JSON file; - reads standard input
        file: PathBuf,
        #[command(flatten)]
        whose: Whose,
        /// Refuse if it was changed after this moment, which `config get --output json` shows as last_updated
        #[arg(long, value_name = "MOMENT")]
        unchanged_since: Option<Timestamp>,
        /// Also if the device would not accept all of it
        #[arg(long)]
        force: bool,
    },
    /// Change it in an editor ($VISUAL, $EDITOR)
    Edit {
        #[command(flatten)]
        which: Which,
        /// Also if the device would not accept all of it
        #[arg(long)]
        force: bool,
    },
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    let read = |part: RobotPart| Configuration::read(session, &part.id);
    match verb {
        Verb::Get(which) => {
            let configuration = read(which.find(session)?)?;
            if output.is_json() {
                let document: Value =
                    serde_json::from_str(&configuration.text).unwrap_or(Value::String(configuration.text));
                let last_updated = moment(configuration.part.last_updated.as_ref());
                return output.json(
                    &json!({"part_id": configuration.part.id, "last_updated": last_updated, "config": document}),
                );
            }
            output.line(configuration.text.trim_end())
        }
        Verb::Set { file, whose, unchanged_since, force } => {
            let text = read_text(&file)?;
            let configuration = read(whose.find(session)?)?;
            let part = configuration.write(session, &text, unchanged_since, Unacceptable::forced(force))?;
            done(output, &part)
        }
        Verb::Edit { which, force } => {
            let configuration = read(which.find(session)?)?;
            let readable = serde_json::from_str::<Value>(&configuration.text).map(|document| format!("{document:#}\n"));
            let before = readable.unwrap_or_else(|_| configuration.text.clone());
            let draft = Draft::new(&before)?;
            let text = draft.edit()?;
            if text == before {
                return output
                    .done("Nothing was changed.", json!({"part_id": configuration.part.id, "changed": false}));
            }
            match configuration.write(session, &text, None, Unacceptable::forced(force)) {
                Ok(part) => done(output, &part),
                // What a person has typed is not thrown away.
                Err(failure) => {
                    eprintln!("Your text is kept in {}.", draft.keep()?.display());
                    Err(failure)
                }
            }
        }
    }
}

fn done(output: &mut Output, part: &RobotPart) -> Result<(), Failure> {
    let last_updated = moment(part.last_updated.as_ref());
    output.done(
        &format!("The configuration of {:?} is changed; its device takes it over within seconds.", part.name),
        json!({"part_id": part.id, "last_updated": last_updated, "changed": true}),
    )
}

/// A configuration in an editor. The file can only be read by its owner: configurations contain passwords.
struct Draft(tempfile::NamedTempFile);

impl Draft {
    fn new(text: &str) -> Result<Self, Failure> {
        let prefix = format!("{}-config-", brand::NAME);
        let temporary = tempfile::Builder::new().prefix(&prefix).suffix(".json").tempfile();
        let mut file = temporary.map_err(Failure::file(env::temp_dir()))?;
        file.write_all(text.as_bytes()).map_err(Failure::file(file.path().to_owned()))?;
        Ok(Self(file))
    }

    fn edit(&self) -> Result<String, Failure> {
        let set = |name| env::var(name).ok().filter(|value| !value.trim().is_empty());
        let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
        // Editors are set with their options ("code --wait"), so a shell takes them apart.
        let status =
            Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("editor").arg(self.0.path()).status();
        let status = status.map_err(Failure::file(editor.clone()))?;
        if !status.success() {
            return Err(Failure::Configuration(format!(
                "the editor {editor:?} ended with {status}, so nothing was changed"
            )));
        }
        // Read by its name: editors replace the file.
        fs::read_to_string(self.0.path()).map_err(Failure::file(self.0.path().to_owned()))
    }

    fn keep(self) -> Result<PathBuf, Failure> {
        let kept = self.0.into_temp_path().keep();
        kept.map_err(|error| Failure::File { path: error.path.to_path_buf(), source: error.error })
    }
}

pub(super) fn check_file(file: &Path, defaults: bool, output: &mut Output) -> Result<(), Failure> {
    let text = read_text(file)?;
    let origin = if defaults { Origin::Defaults } else { Origin::Cloud };
    let complaints = device_config::check(text.as_bytes(), origin);
    if output.is_json() {
        let list = complaints.iter().map(|one| {
            let (line, column) =
                one.position.map_or((Value::Null, Value::Null), |at| (at.line.into(), at.column.into()));
            json!({"path": &*one.path, "line": line, "column": column, "found": &*one.found, "allowed": &*one.allowed})
        });
        output.json(&Value::Array(list.collect()))?;
    } else {
        for complaint in &complaints {
            // The way compilers write places, which editors can jump to.
            let place = complaint.position.map(|at| format!(":{}:{}", at.line, at.column)).unwrap_or_default();
            let what = device_config::Complaint { position: None, ..complaint.clone() };
            output.line(&plain(&format!("{}{place}: {what}", file.display())))?;
        }
    }
    match complaints.len() {
        0 if output.is_json() => Ok(()),
        0 => output.line(&format!("{}: a device accepts all of it", file.display())),
        count => {
            output.flush()?;
            let noun = if count == 1 { "setting is" } else { "settings are" };
            Err(Failure::Found(format!("{count} {noun} not accepted; a device keeps what it had before for each")))
        }
    }
}
