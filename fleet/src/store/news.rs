//! What servers tell each other: what of the database each of them must not go on remembering.
//!
//! Told in the transaction of the change itself, so that no change is without its news, whoever dies when. The server
//! that makes the change hears it between the commit and the answer; the others read it here, woken by an announcement
//! or every half second. Rows are numbered in the order of their commits, because writers run one after another.

use super::{DbError, Note, Tx};
use crate::clock::Millis;

/// How long news is kept. Who slept longer forgets everything.
pub const KEPT: Millis = 60 * 60 * 1000;
/// Read in one go.
const AT_ONCE: i64 = 500;

/// Something to forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// An API key was deleted or rotated.
    Key(String),
    /// The rights of a person or a key changed.
    Identity(String),
    /// Secrets of a part were deleted.
    PartSecrets(String),
    /// Secrets of a location were deleted.
    LocationSecrets(String),
    /// Who reaches what changed for many.
    Rights,
    /// Something was moved, shared or removed.
    Tree,
    /// A part's own configuration changed.
    Part(String),
    /// A part is gone.
    PartGone(String),
    /// Something changed that many configurations depend on.
    Configurations,
    /// News was missed, or is of a kind that a newer server knows: nothing that is remembered can be counted on.
    Everything,
}

impl News {
    fn note(self) -> Note {
        let (kind, about) = match self {
            Self::Key(id) => ("key", id),
            Self::Identity(id) => ("identity", id),
            Self::PartSecrets(id) => ("part secrets", id),
            Self::LocationSecrets(id) => ("location secrets", id),
            Self::Rights => ("rights", String::new()),
            Self::Tree => ("tree", String::new()),
            Self::Part(id) => ("part", id),
            Self::PartGone(id) => ("part gone", id),
            Self::Configurations => ("configurations", String::new()),
            Self::Everything => ("everything", String::new()),
        };
        Note { kind, about }
    }

    fn read(kind: &str, about: &str) -> Self {
        let id = about.to_owned();
        match kind {
            "key" => Self::Key(id),
            "identity" => Self::Identity(id),
            "part secrets" => Self::PartSecrets(id),
            "location secrets" => Self::LocationSecrets(id),
            "rights" => Self::Rights,
            "tree" => Self::Tree,
            "part" => Self::Part(id),
            "part gone" => Self::PartGone(id),
            "configurations" => Self::Configurations,
            _ => Self::Everything,
        }
    }
}

/// One piece of news and its number.
pub type Numbered = (i64, News);

/// Tells it, if the transaction is committed. Inside [`super::Store::write`], which writes it down.
pub fn tell(tx: &Tx<'_>, news: News) {
    tx.note(news.note());
}

/// The same about several identities.
pub(super) fn tell_identities<'a>(tx: &Tx<'_>, ids: impl IntoIterator<Item = &'a String>) {
    ids.into_iter().for_each(|id| tell(tx, News::Identity(id.clone())));
}

/// Writes down what was told in this transaction.
pub(super) fn write(tx: &Tx<'_>, now: Millis) -> Result<Vec<Numbered>, DbError> {
    let told = tx.noted();
    if told.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "INSERT INTO news (id, kind, about, told_at) VALUES
                   ((SELECT COALESCE(MAX(id), 0) + 1 FROM news), $1, $2, $3) RETURNING id";
    let mut numbered = Vec::with_capacity(told.len());
    for note in told {
        let args = [note.kind.into(), (&note.about).into(), now.into()];
        let id = tx.run_returning(sql, &args, |row| row.int(0))?.unwrap_or_default();
        numbered.push((id, News::read(note.kind, &note.about)));
    }
    tx.announce();
    Ok(numbered)
}

/// The number of the newest; 0 before there was any.
pub fn newest(tx: &Tx<'_>) -> Result<i64, DbError> {
    Ok(tx.first("SELECT COALESCE(MAX(id), 0) FROM news", &[], |row| row.int(0))?.unwrap_or_default())
}

/// What came after a number, oldest first, and whether that is all. Where some of it is gone already, that is said there:
/// numbers have no gaps but those of deleted news, whichever server's clock deleted them.
pub fn after(tx: &Tx<'_>, number: i64) -> Result<(Vec<Numbered>, bool), DbError> {
    let sql = "SELECT id, kind, about FROM news WHERE id > $1 ORDER BY id LIMIT $2";
    let found =
        tx.all(sql, &[number.into(), AT_ONCE.into()], |row| Ok((row.int(0)?, News::read(row.str(1)?, row.str(2)?))))?;
    let all = found.len() < AT_ONCE as usize;
    // Fewer than there were: another database under the same name, or an old copy of it.
    if found.is_empty() {
        let newest = newest(tx)?;
        return Ok((if newest < number { vec![(newest, News::Everything)] } else { Vec::new() }, all));
    }
    let (mut told, mut last) = (Vec::with_capacity(found.len()), number);
    for (id, news) in found {
        if id > last + 1 {
            told.push((id - 1, News::Everything));
        }
        last = id;
        told.push((id, news));
    }
    Ok((told, all))
}

/// Deletes what is old, the newest never: the next one is numbered after it.
pub fn forget(tx: &Tx<'_>, now: Millis) -> Result<usize, DbError> {
    let sql = "DELETE FROM news WHERE told_at < $1 AND id < (SELECT MAX(id) FROM news)";
    tx.run(sql, &[(now - KEPT).into()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, Store};

    #[tokio::test]
    async fn where_news_is_missing_everything_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), None, Durability::default()).unwrap();
        for id in ["a", "b", "c", "d"] {
            let told = move |tx: &Tx<'_>| {
                tell(tx, News::Key(id.into()));
                Ok(())
            };
            store.write::<_, DbError>(told).await.unwrap();
        }
        let after = async |number| {
            let (told, all) = store.read::<_, DbError>(|tx| after(tx, number)).await.unwrap();
            assert!(all);
            told
        };
        let key = |number, id: &str| (number, News::Key(id.into()));
        assert_eq!(after(2).await, [key(3, "c"), key(4, "d")]);
        assert_eq!(after(4).await, []);
        assert_eq!(after(9).await, [(4, News::Everything)], "an old copy of the database");
        // By a server whose clock was ahead.
        store.write::<_, DbError>(|tx| tx.run("DELETE FROM news WHERE id = 3", &[])).await.unwrap();
        assert_eq!(after(1).await, [key(2, "b"), (3, News::Everything), key(4, "d")]);
        assert_eq!(after(2).await, [(3, News::Everything), key(4, "d")]);
    }
}
