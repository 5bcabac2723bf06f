//! An agent as a user of this machine runs it.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{Trouble, process::Running, programs};

/// How an agent is to be started.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Folder for its credentials, state and log.
    pub folder: PathBuf,
    /// The agent to start; the one built beside this program unless given.
    pub program: Option<PathBuf>,
    /// Seconds in a minute of settings.
    pub minute: Option<f64>,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Added to the environment.
    pub environment: Vec<(String, String)>,
}

impl AgentOptions {
    /// As the sandbox runs it: real minutes.
    pub fn new(folder: &Path) -> Self {
        AgentOptions {
            folder: folder.to_owned(),
            program: None,
            minute: None,
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// The credentials file it reads.
    pub fn credentials(&self) -> PathBuf {
        self.folder.join("platform.json")
    }

    /// The manufacturer's defaults file it reads.
    pub fn defaults(&self) -> PathBuf {
        self.folder.join("defaults.json")
    }

    /// The root folder it uses.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Where its output goes.
    pub fn log(&self) -> PathBuf {
        self.folder.join("agent.log")
    }

    /// Starts the agent.
    pub fn start(&self) -> Result<Running, Trouble> {
        std::fs::create_dir_all(&self.folder).map_err(|error| Trouble::of(self.folder.display(), error))?;
        let program = match &self.program {
            Some(program) => program.clone(),
            None => programs::find("platform-agent")?,
        };
        let mut command = Command::new(program);
        command.arg("--dev-mode").arg("--config").arg(self.credentials());
        command.arg("--defaults").arg(self.defaults()).arg("--root").arg(self.root());
        if let Some(minute) = self.minute {
            command.args(["--minute", &minute.to_string()]);
        }
        command.args(&self.arguments).envs(self.environment.iter().map(|(key, value)| (key, value)));
        Running::start(command, "platform-agent", &self.log(), false).map(|(running, _)| running)
    }
}
