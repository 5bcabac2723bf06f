//! Which database the command line and the environment name, and where its password comes from.
//!
//! Arguments can be read by every user of a machine, for as long as a program runs: a password among them is refused.

use std::{env, fs, path::Path};

use crate::{
    args::Place,
    store::{Address, AddressError},
};

/// Names the database instead of `--database`; may hold the password, because only the user and root can read it.
pub const URL_VARIABLE: &str = "PLATFORM_FLEET_DATABASE";
/// The password, by the name that PostgreSQL's own programs use.
pub const PASSWORD_VARIABLE: &str = "PGPASSWORD";

/// Why the database cannot be named so. For the person who started the program; repeats no password.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseArgumentError {
    /// See [`AddressError`].
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Everybody on the machine could read it.
    #[error(
        "--database has a password in it, which every user of this machine can read: leave it out, and put it into \
         a file named by --database-password-file, or into the environment as {PASSWORD_VARIABLE}"
    )]
    Exposed,
    /// No such file, or no permission.
    #[error("cannot read the password from {path}: {why}")]
    PasswordFile {
        /// The file.
        path: String,
        /// What the system said.
        why: String,
    },
    /// A password for nothing.
    #[error("--database-password-file is given, but no --database")]
    NoDatabase,
}

/// The PostgreSQL database to use; `None` means files in the data folder.
pub fn named(place: &Place) -> Result<Option<Address>, DatabaseArgumentError> {
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    choose(place, variable(URL_VARIABLE), variable(PASSWORD_VARIABLE))
}

fn choose(
    place: &Place,
    url: Option<String>,
    password: Option<String>,
) -> Result<Option<Address>, DatabaseArgumentError> {
    let address = match (&place.database, url) {
        (Some(argument), _) => {
            let address = Address::parse(argument)?;
            if address.has_password() {
                return Err(DatabaseArgumentError::Exposed);
            }
            address
        }
        (None, Some(url)) => Address::parse(&url)?,
        (None, None) if place.database_password_file.is_some() => return Err(DatabaseArgumentError::NoDatabase),
        (None, None) => return Ok(None),
    };
    Ok(Some(match (&place.database_password_file, password) {
        (Some(file), _) => address.with_password(&first_line(file)?),
        (None, Some(password)) => address.with_password(&password),
        (None, None) => address,
    }))
}

fn first_line(file: &Path) -> Result<String, DatabaseArgumentError> {
    let refused = |why: std::io::Error| DatabaseArgumentError::PasswordFile {
        path: file.display().to_string(),
        why: why.to_string(),
    };
    let text = fs::read_to_string(file).map_err(refused)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(database: Option<&str>, file: Option<&Path>) -> Place {
        Place {
            data: "data".into(),
            database: database.map(str::to_owned),
            database_password_file: file.map(Path::to_owned),
            artifacts: None,
            artifacts_credentials: None,
        }
    }

    #[test]
    fn a_password_comes_from_a_file_or_the_environment_and_never_from_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "from file\n").unwrap();
        let url = Some("postgres://u@db/fleet");
        let has = |found: Result<Option<Address>, _>| found.map(|address| address.map(|one| one.has_password()));
        let environment = Some("postgres://u:pw@db/fleet".to_owned());
        assert_eq!(has(choose(&place(None, None), None, Some("x".into()))).unwrap(), None);
        assert_eq!(has(choose(&place(url, None), None, None)).unwrap(), Some(false));
        assert_eq!(has(choose(&place(url, None), environment.clone(), None)).unwrap(), Some(false), "arguments first");
        assert_eq!(has(choose(&place(url, None), None, Some("x".into()))).unwrap(), Some(true));
        assert_eq!(has(choose(&place(url, Some(&file)), None, None)).unwrap(), Some(true));
        assert_eq!(has(choose(&place(None, None), environment, None)).unwrap(), Some(true));
        let exposed = choose(&place(Some("postgres://u:s3cret@db/fleet"), None), None, None).unwrap_err();
        assert!(matches!(exposed, DatabaseArgumentError::Exposed) && !exposed.to_string().contains("s3cret"));
        let missing = choose(&place(url, Some(&folder.path().join("none"))), None, None);
        assert!(matches!(missing, Err(DatabaseArgumentError::PasswordFile { .. })));
        assert!(matches!(choose(&place(None, Some(&file)), None, None), Err(DatabaseArgumentError::NoDatabase)));
    }
}
