//! The page and everything that is shown on it. Nothing gets onto it unescaped.

use std::fmt::{self, Write as _};

use api::{digest, json::quoted};
use board::network::{Security, Seen, Ssid};

use super::{base64, forms::from_hex};
use crate::provisioning::welcome::{Attempt, IdentityDoor, Result, Welcome};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Half of the 30 KB that a page may have; the rest is for the list of networks.
const _: () = assert!(PAGE.len() + STYLE.len() + SCRIPT.len() <= 16 * 1024);

/// Networks that are shown at once, so that the password is not far below them; the weaker ones are folded away.
const NEAR: usize = 8;

/// Text as text.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                plain => f.write_char(plain)?,
            }
        }
        Ok(())
    }
}

/// A network's name: kept apart from the text around it, whatever direction it claims to be written in.
struct Name<'a>(&'a Ssid);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<bdi>{}</bdi>", Plain(&self.0.to_string()))
    }
}

/// Lowercase hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What the page may do: its own style and script by their digests, its own forms, and nothing else.
pub(super) fn policy() -> String {
    let hash = |text: &str| base64::encoded(&digest(text.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; img-src data:; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
}

/// What was wrong with what was typed: the sentence, and which field it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) text: String,
    pub(super) field: &'static str,
}

/// What stays in the form after it was refused; never a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Typed {
    /// The value of the chosen button.
    pub(super) network: String,
    pub(super) name: String,
}

/// Everything that one answer shows.
pub(super) struct View<'a> {
    pub(super) welcome: &'a Welcome,
    pub(super) hotspot: &'a str,
    pub(super) token: &'a str,
    pub(super) problem: Option<Problem>,
    pub(super) typed: Typed,
    /// A sentence about what was just done.
    pub(super) notice: Option<&'static str>,
    /// The visitor wants another network although this one works.
    pub(super) again: bool,
}

/// The device is where it is wanted, and knows who it is.
pub(super) fn is_done(welcome: &Welcome) -> bool {
    let joined = matches!(&welcome.attempt, Some(Attempt { result: Result::Joined { .. }, .. }));
    joined && welcome.identity != IdentityDoor::Wanted
}

/// There is a result that a person can see.
pub(super) fn has_ended(welcome: &Welcome) -> bool {
    matches!(&welcome.attempt, Some(Attempt { result: Result::Joined { .. } | Result::Failed(_), .. }))
}

fn is_trying(welcome: &Welcome) -> bool {
    matches!(&welcome.attempt, Some(Attempt { result: Result::Trying, .. }))
}

/// The value of the button for this network.
fn value(ssid: &Ssid) -> String {
    format!("x{}", hex(ssid.bytes()))
}

/// The name behind the value of a button.
pub(super) fn chosen(value: &str) -> Option<Vec<u8>> {
    from_hex(value.strip_prefix('x')?.as_bytes())
}

impl View<'_> {
    /// The whole page.
    pub(super) fn page(&self) -> Vec<u8> {
        let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + 4096);
        let mut parts = PAGE.split("{{");
        page.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
            let _ = self.fill(name, &mut page);
            page.push_str(rest);
        }
        page.into_bytes()
    }

    fn fill(&self, name: &str, to: &mut String) -> fmt::Result {
        let Welcome { manufacturer, model, hostname, .. } = self.welcome;
        let (other, typed) = self.other();
        match name {
            "css" => to.write_str(STYLE),
            "js" => to.write_str(SCRIPT),
            "title" => write!(to, "{} {}: setup", Plain(manufacturer), Plain(model)),
            "manufacturer" => write!(to, "{}", Plain(manufacturer)),
            "model" => write!(to, "{}", Plain(model)),
            "hostname" => write!(to, "{}", Plain(hostname)),
            "token" => write!(to, "{}", Plain(self.token)),
            "refresh" if is_trying(self.welcome) => {
                to.write_str("<noscript><meta http-equiv=\"refresh\" content=\"4;url=/\"></noscript>")
            }
            "phase" => to.write_str(self.phase()),
            "gone" => write!(to, "{}", Plain(&self.parting("The device has left its hotspot"))),
            "status" => to.write_str(&self.status()),
            "problem" => match &self.problem {
                Some(problem) => write!(to, "<div class=\"card no\"><b>{}</b></div>", Plain(&problem.text)),
                None => Ok(()),
            },
            "networks" => to.write_str(&self.networks()),
            "other" if other => to.write_str("checked"),
            "name" => write!(to, "{}", Plain(&typed)),
            "invalid-name" if self.is_about("name") => to.write_str("aria-invalid=\"true\""),
            "invalid-password" if self.is_about("password") => to.write_str("aria-invalid=\"true\""),
            "enctype" if self.welcome.identity != IdentityDoor::Shut => to.write_str("enctype=\"multipart/form-data\""),
            "identity" => self.identity(to),
            "note" => to.write_str(if self.welcome.stays {
                "The hotspot stays open while the device tries the network: you see here how it ends."
            } else {
                "The hotspot closes while the device tries the network. It comes back with the reason if that fails."
            }),
            "mood" => to.write_str(self.mood()),
            "complaints" => self.complaints(to),
            "about" => self.about(to),
            _ => Ok(()),
        }
    }

    /// What the page's script asks for, and gets as an answer to what it sends.
    pub(super) fn state(&self) -> Vec<u8> {
        let Self { token, problem, .. } = self;
        let mut json = format!(
            "{{\"token\":{},\"phase\":{},\"mood\":{},\"identity\":{},\"status\":{},\"networks\":{}",
            quoted(token),
            quoted(self.phase()),
            quoted(self.mood()),
            self.welcome.identity != IdentityDoor::Shut,
            quoted(&self.status()),
            quoted(&self.networks()),
        );
        if let Some(Problem { text, field }) = problem {
            let _ = write!(json, ",\"problem\":{},\"field\":{}", quoted(text), quoted(field));
        }
        json.push('}');
        json.into_bytes()
    }

    fn is_about(&self, field: &str) -> bool {
        self.problem.as_ref().is_some_and(|problem| problem.field == field)
    }

    fn phase(&self) -> &'static str {
        match &self.welcome.attempt {
            None => "none",
            Some(Attempt { result: Result::Trying, .. }) => "trying",
            Some(Attempt { result: Result::Joined { .. }, .. }) => "joined",
            Some(Attempt { result: Result::Failed(_), .. }) => "failed",
        }
    }

    /// What the visitor is shown beside the status: the form is not for who waits, nor for who is done.
    fn mood(&self) -> &'static str {
        match () {
            () if self.problem.is_some() => "",
            () if is_trying(self.welcome) => "trying",
            () if is_done(self.welcome) && !self.again => "done",
            () => "",
        }
    }

    fn parting(&self, begin: &str) -> String {
        format!(
            "<div class=\"card try\"><b>{begin}</b><p>It tries the network now, and your phone loses the hotspot for \
             that long. If <bdi>{}</bdi> comes back within three minutes, join it again and open this page: it says \
             what went wrong. If it does not come back, the device is connected.</p></div>",
            Plain(self.hotspot)
        )
    }

    /// How the last attempt stands, in words.
    fn status(&self) -> String {
        let mut text = self.notice.map_or_else(String::new, |notice| card("ok", notice, ""));
        let wanted = self.welcome.identity == IdentityDoor::Wanted;
        match &self.welcome.attempt {
            Some(Attempt { ssid, result, .. }) => text.push_str(&match result {
                Result::Trying if self.welcome.stays => card(
                    "try",
                    &format!("Connecting to {}", Name(ssid)),
                    "This may take a minute. Stay here to see how it ends.",
                ),
                Result::Trying => self.parting(&format!("The device leaves to join {}", Name(ssid))),
                Result::Joined { address, online } => {
                    let address = address.as_ref().map(|address| format!("Its address there is {}. ", Plain(address)));
                    let next = match (online, wanted) {
                        (_, true) => "It does not know yet who it is: give it its credentials.",
                        (true, false) => "It is online. You can close this page.",
                        (false, false) => "It has not reached the internet yet.",
                    };
                    let again =
                        if is_done(self.welcome) { "<br><a href=\"/?again\">Choose another network</a>" } else { "" };
                    let next = format!("{}{next}{again}", address.unwrap_or_default());
                    card("ok", &format!("The device is connected to {}", Name(ssid)), &next)
                }
                Result::Failed(reason) => card(
                    "no",
                    &capital(&Plain(reason).to_string()),
                    &format!("The device is not connected to {}. Choose again and connect.", Name(ssid)),
                ),
            }),
            None => {
                if let Some(ssid) = &self.welcome.joined {
                    text.push_str(&card("", &format!("The device is connected to {}", Name(ssid)), ""));
                } else if self.welcome.online {
                    text.push_str(&card("", "The device is online", ""));
                }
            }
        }
        text
    }

    /// The button that is chosen: what was typed, or the network that did not work.
    fn preferred(&self) -> String {
        if !self.typed.network.is_empty() {
            return self.typed.network.clone();
        }
        let attempt = self.welcome.attempt.as_ref();
        attempt.map(|attempt| value(&attempt.ssid)).unwrap_or_default()
    }

    /// Whether a name is typed rather than chosen, and which.
    fn other(&self) -> (bool, String) {
        let preferred = self.preferred();
        if preferred == "other" {
            return (true, self.typed.name.clone());
        }
        let listed = self.welcome.networks.iter().any(|seen| value(&seen.ssid) == preferred);
        let name = chosen(&preferred).filter(|_| !listed).and_then(|name| String::from_utf8(name).ok());
        name.map_or((false, String::new()), |name| (true, name))
    }

    fn networks(&self) -> String {
        let preferred = self.preferred();
        let mut list = String::new();
        for (number, Seen { ssid, signal, security, .. }) in self.welcome.networks.iter().enumerate() {
            let value = value(ssid);
            if number == NEAR {
                let far = self.welcome.networks.iter().skip(NEAR);
                let open = far.into_iter().any(|seen| self::value(&seen.ssid) == preferred);
                list.push_str(if open { "<details open>" } else { "<details>" });
                list.push_str("<summary>More networks</summary>");
            }
            let checked = if value == preferred { " checked" } else { "" };
            let (words, possible) = security_in_words(*security);
            let state = match possible {
                false => " disabled",
                true if security.wants_password() => "",
                true => " data-open=\"1\"",
            };
            let here = if self.welcome.joined.as_ref() == Some(ssid) { ", connected" } else { "" };
            let bars = match signal {
                0..25 => 0,
                25..50 => 1,
                50..75 => 2,
                _ => 3,
            };
            let _ = write!(
                list,
                "<input type=\"radio\" name=\"network\" value=\"{value}\" id=\"n{number}\"{checked}{state}>\
                 <label for=\"n{number}\" class=\"net\"><span class=\"n\">{}</span>\
                 <span class=\"m\">{words}, signal {signal} %{here}</span>\
                 <svg aria-hidden=\"true\"><use href=\"#w{bars}\"></use></svg></label>",
                Name(ssid),
            );
        }
        if self.welcome.networks.len() > NEAR {
            list.push_str("</details>");
        }
        if list.is_empty() {
            list.push_str("<p class=\"hint\">No network was heard yet. Look again, or type the name.</p>");
        }
        list
    }

    fn identity(&self, to: &mut String) -> fmt::Result {
        let (open, close, why) = match self.welcome.identity {
            IdentityDoor::Shut => return Ok(()),
            IdentityDoor::Wanted => (
                "<section id=\"who\" aria-labelledby=\"h2\"><h2 id=\"h2\">Credentials of this machine</h2>",
                "</section>",
                "This device does not know yet who it is. Paste the credentials that your fleet server shows for the \
                 machine, or choose the file.",
            ),
            IdentityDoor::Open => (
                "<details id=\"who\"><summary>Make it another machine</summary>",
                "</details>",
                "This device is set up already. Credentials given here replace the ones that it has.",
            ),
        };
        let invalid = if self.is_about("credentials") { " aria-invalid=\"true\"" } else { "" };
        write!(
            to,
            "{open}<p class=\"hint\" id=\"why\">{why}</p><label for=\"credentials\">Credentials</label>\
             <textarea id=\"credentials\" name=\"credentials\" rows=\"4\" autocapitalize=\"none\" autocorrect=\"off\" \
             spellcheck=\"false\" aria-describedby=\"why\" placeholder='{{\"cloud\": …}}'{invalid}></textarea>\
             <label for=\"file\">or a file</label><input type=\"file\" id=\"file\" name=\"file\" \
             accept=\".json,application/json\">{close}"
        )
    }

    fn complaints(&self, to: &mut String) -> fmt::Result {
        if self.welcome.complaints.is_empty() {
            return Ok(());
        }
        to.write_str("<div class=\"card no\"><b>What is wrong with this device</b><ul>")?;
        self.welcome.complaints.iter().try_for_each(|complaint| write!(to, "<li>{}</li>", Plain(complaint)))?;
        to.write_str("</ul></div>")
    }

    fn about(&self, to: &mut String) -> fmt::Result {
        let Welcome { manufacturer, model, hostname, fragment_id, agent_version, identity, .. } = self.welcome;
        let owner = match identity {
            IdentityDoor::Wanted => "none yet",
            IdentityDoor::Open => "set, and may be changed here",
            IdentityDoor::Shut => "set; only the network can be changed here",
        };
        to.write_str("<dl>")?;
        for (name, text) in [
            ("Manufacturer", &**manufacturer),
            ("Model", model),
            ("Name", hostname),
            ("Fragment", fragment_id.as_deref().unwrap_or("none")),
            ("Identity", owner),
            ("Version", agent_version),
        ] {
            write!(to, "<dt>{name}</dt><dd>{}</dd>", Plain(text))?;
        }
        to.write_str("</dl>")
    }
}

/// `title` and `text` are HTML.
fn card(class: &str, title: &str, text: &str) -> String {
    let text = if text.is_empty() { String::new() } else { format!("<p>{text}</p>") };
    format!("<div class=\"card {class}\"><b>{title}</b>{text}</div>")
}

/// Sentences of the agent begin small, because they follow a colon elsewhere. The name of a field stays as it is.
pub(super) fn capital(text: &str) -> String {
    if text.split(' ').next().is_some_and(|word| word.contains(['.', '_'])) {
        return text.to_owned();
    }
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// In words, and whether it can be joined at all.
const fn security_in_words(security: Security) -> (&'static str, bool) {
    match security {
        Security::Open => ("no password", true),
        Security::EnhancedOpen => ("no password, encrypted", true),
        Security::Wep => ("WEP, broken, cannot be used", false),
        Security::Wpa => ("WPA", true),
        Security::Wpa2 => ("WPA2", true),
        Security::Wpa2Wpa3 => ("WPA2 and WPA3", true),
        Security::Wpa3 => ("WPA3", true),
        Security::Enterprise => ("login of an organization, cannot be used", false),
    }
}

#[cfg(test)]
pub(super) fn placeholders() -> Vec<&'static str> {
    PAGE.split("{{").skip(1).filter_map(|part| part.split_once("}}")).map(|(name, _)| name).collect()
}
