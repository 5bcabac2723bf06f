//! Everything behind the hotspot's HTTP port: the page, its forms, the answers to phones that ask whether there is a page
//! to show, and the contract's provisioning service.
//!
//! Pure: a request and a [`Welcome`] in, a response and what the visitor did out. Owns no socket, no time and no random
//! numbers; the key of an opening is given. Loading something is never an activity unless a person did it.
//!
//! | file | owns |
//! |---|---|
//! | `routes` | which request gets what, and what it means |
//! | `probes` | the questions of phones and computers, one row each |
//! | `html`, `page.*` | the page, and everything that is shown on it |
//! | `forms` | what browsers send |
//! | `grpc` | the provisioning service, as gRPC-Web |

mod base64;
mod forms;
mod grpc;
mod html;
mod probes;
mod routes;

#[cfg(test)]
mod tests;

use api::{Secret, digest};
use board::doorway::{Request, Response, SocketAddr, SocketAddrV4};

use super::{
    machine::Refused,
    visit::{Door, Visit},
    welcome::Welcome,
};

/// Visitors who are remembered for having come; one more and the first is forgotten and may come again.
const CAME_MAX: usize = 16;

/// What the page must know of where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The device's own address on the hotspot, and the port.
    pub address: SocketAddrV4,
    /// Length of the network's prefix: who is not in it has come another way and is not let in.
    pub prefix: u8,
    /// The hotspot's name, for the sentence "join it again".
    pub hotspot: String,
    /// Where phones are told that the API of RFC 8908 is: `https://portal.acme.example/api`. They believe it only by https
    /// with a certificate that they trust; what has that stands in front of this port and passes the name on.
    pub captive_api: Option<String>,
}

/// What is answered, and what the visitor did, in order. Do first, then answer: the next request shows the outcome.
pub struct Answer {
    /// For the visitor.
    pub response: Response,
    /// For the machine; every one of them is permitted.
    pub visits: Visits,
}

/// An identity and a network at once, from somebody who has just come; or somebody who comes and sees a result.
pub type Visits = heapless::Vec<(Door, Visit), 3>;

/// Asks whether a visitor may do something now.
pub type Permits<'a> = &'a dyn Fn(Door, &Visit) -> Result<(), Refused>;

/// The page of one opening.
pub struct Portal {
    site: Site,
    /// `http://10.42.0.1`
    base: String,
    key: [u8; 32],
    policy: String,
    came: heapless::Deque<u32, CAME_MAX>,
}

impl Portal {
    /// `key` is random and differs at each opening: what a stranger's page may have learnt is worth nothing afterwards.
    #[must_use]
    pub fn new(site: Site, key: [u8; 32]) -> Portal {
        let base = match site.address.port() {
            80 => format!("http://{}", site.address.ip()),
            _ => format!("http://{}", site.address),
        };
        Portal { site, base, key, policy: html::policy(), came: heapless::Deque::new() }
    }

    /// Answers a request and says what it means.
    pub fn answer(&mut self, request: &Request, welcome: &Welcome, permits: Permits<'_>) -> Answer {
        routes::answer(self, request, welcome, permits)
    }

    /// The visitor's number, if he is on the hotspot: an address elsewhere could only come in through another link.
    fn visitor(&self, request: &Request) -> Option<u32> {
        let SocketAddr::V4(visitor) = request.visitor else { return None };
        let (visitor, ours) = (visitor.ip().to_bits(), self.site.address.ip().to_bits());
        let different = 32_u32.saturating_sub(u32::from(self.site.prefix));
        ((visitor ^ ours).checked_shr(different).unwrap_or(0) == 0).then_some(visitor)
    }

    /// What a form of ours carries and nobody else's can.
    fn token(&self, visitor: u32) -> Secret {
        let sum = digest::hmac_sha256(&self.key, &visitor.to_be_bytes());
        Secret::from(html::hex(sum.get(..16).unwrap_or_default()))
    }

    /// Whether this visitor comes for the first time.
    fn comes(&mut self, visitor: u32) -> bool {
        if self.came.iter().any(|&known| known == visitor) {
            return false;
        }
        if self.came.is_full() {
            self.came.pop_front();
        }
        self.came.push_back(visitor).is_ok()
    }
}
