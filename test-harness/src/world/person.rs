//! People near the device: one who wants to set it up, and the phone in his hand.
//!
//! A phone reaches the page through the routes of production, and reads what is written there. It can be only where the
//! hotspot is, and whoever does not know its password is not let in.

use std::time::Duration;

use board::doorway::{Request, Response, SocketAddr};
use board_sim::doorway::Answer;

use super::{World, seconds};

/// What a phone's browser says that it is.
const BROWSER: &str = "Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 Chrome/120.0 Mobile Safari/537.36";
/// How long a person waits for a page.
const PATIENCE: Duration = seconds(10);

/// A phone in the hotspot.
#[derive(Clone, Copy, Debug)]
pub struct Phone {
    /// Its place among the addresses that the hotspot gives.
    pub number: u8,
}

/// What a browser shows.
#[derive(Clone, Debug)]
pub struct Page {
    /// 200
    pub status: u16,
    /// Where it leads.
    pub location: Option<String>,
    /// The page.
    pub text: String,
}

impl Page {
    fn of(response: &Response) -> Page {
        let location = response.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("location"));
        Page {
            status: response.status,
            location: location.map(|(_, value)| value.to_string()),
            text: String::from_utf8_lossy(&response.body).into_owned(),
        }
    }

    /// Whether a person reads this on it.
    #[must_use]
    pub fn says(&self, text: &str) -> bool {
        self.text.to_lowercase().contains(&text.to_lowercase())
    }

    fn token(&self) -> Option<&str> {
        let (_, rest) = self.text.split_once("name=\"token\" value=\"")?;
        rest.split_once('"').map(|(token, _)| token)
    }
}

impl World {
    /// A phone joins the hotspot, if there is one and the password is right.
    pub fn phone(&self, number: u8, password: &str) -> Option<Phone> {
        self.board.networks.phone_joins(password).then_some(Phone { number })
    }

    /// The hotspot's own password, as it is on the label.
    #[must_use]
    pub fn label(&self) -> String {
        self.board.networks.hotspot().map(|hotspot| hotspot.password.expose().to_owned()).unwrap_or_default()
    }

    /// A request of a phone; `None` when nobody answers.
    pub fn ask(&mut self, phone: Phone, request: Asking<'_>) -> Option<Page> {
        let exchange = self.board.doorway.knock(request.from(phone, self.board.doorway.address()?));
        let waiting = exchange.clone();
        self.run_until(PATIENCE, move |_| waiting.answer() != Answer::Open);
        match exchange.answer() {
            Answer::Given(response) => Some(Page::of(&response)),
            Answer::Open | Answer::Refused | Answer::CutOff => None,
        }
    }

    /// A person opens the page.
    pub fn open_page(&mut self, phone: Phone) -> Option<Page> {
        self.ask(phone, Asking { path: "/", ..Asking::default() })
    }

    /// A person fills in a form of the page and sends it.
    pub fn fill_in(&mut self, phone: Phone, path: &str, fields: &[(&str, &str)]) -> Option<Page> {
        let page = self.open_page(phone)?;
        let token = page.token().unwrap_or_default().to_owned();
        let all = fields.iter().copied().chain([("token", &*token)]);
        let pairs: Vec<_> = all.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        self.ask(phone, Asking { method: "POST", path, body: pairs.join("&"), ..Asking::default() })
    }

    /// A person gives a network that stands in the list.
    pub fn give_network(&mut self, phone: Phone, name: &str, password: &str) -> Option<Page> {
        self.fill_in(phone, "/join", &[("network", "other"), ("name", name), ("password", password)])
    }

    /// A person gives the device an identity.
    pub fn give_identity(&mut self, phone: Phone, credentials: &str) -> Option<Page> {
        self.fill_in(phone, "/join", &[("credentials", credentials)])
    }

    /// The phone's own question whether there is a page to show. Nobody sees it.
    pub fn probe(&mut self, phone: Phone) -> Option<Page> {
        let probe = Asking {
            path: "/generate_204",
            host: Some("connectivitycheck.gstatic.com"),
            agent: "Dalvik/2.1.0 (Linux; U; Android 14)",
            accept: "*/*",
            ..Asking::default()
        };
        self.ask(phone, probe)
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Asking<'a> {
    /// `GET`
    pub method: &'a str,
    /// `/`
    pub path: &'a str,
    /// The name that the phone believes to talk to; the device's address otherwise.
    pub host: Option<&'a str>,
    /// What the phone says that it is.
    pub agent: &'a str,
    /// What it wants.
    pub accept: &'a str,
    /// What it sends.
    pub body: String,
}

impl Default for Asking<'_> {
    fn default() -> Self {
        Asking { method: "GET", path: "/", host: None, agent: BROWSER, accept: "text/html", body: String::new() }
    }
}

impl Asking<'_> {
    /// The request, as it arrives.
    #[must_use]
    pub fn from(&self, phone: Phone, page: board::doorway::SocketAddrV4) -> Request {
        let [a, b, c, _] = page.ip().octets();
        let host = self.host.map_or_else(|| page.ip().to_string(), str::to_owned);
        let headers = [
            ("host", host),
            ("user-agent", self.agent.to_owned()),
            ("accept", self.accept.to_owned()),
            ("content-type", "application/x-www-form-urlencoded".to_owned()),
        ];
        Request {
            method: self.method.to_owned(),
            target: self.path.to_owned(),
            headers: headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            body: self.body.clone().into_bytes(),
            visitor: SocketAddr::from(([a, b, c, phone.number], 40_000)),
        }
    }
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
