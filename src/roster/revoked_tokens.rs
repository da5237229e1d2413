//! Tokens that count no more on a node, by the ids of their blocks: `meta/revoked_tokens.json`, id to the Unix
//! second of the revocation. Only the admin's messages write it.
//!
//! Whoever lost it does not know what was revoked: while a damaged one lies beside it, no token counts.

use super::token::MOST_SECONDS;
use crate::state;
use crate::sync::lock;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// How many ids are kept. An id goes by itself when no token that it names can still count.
const MOST: usize = 100_000;

type Table = BTreeMap<String, i64>;

/// The file.
pub struct RevokedTokens {
    path: PathBuf,
    table: RwLock<Arc<Table>>,
    /// Held while an entry is added and written; readers go on with what was.
    editing: Mutex<()>,
    lost: bool,
}

/// Why nothing was revoked.
#[derive(Debug)]
pub enum Refusal {
    /// There are as many as there can be.
    Full(String),
    /// It could not be written.
    Disk(io::Error),
}

impl RevokedTokens {
    /// The ids in a file. The second says what was wrong with one that made no sense.
    ///
    /// # Errors
    /// The file is there and the system does not let it be read.
    pub fn open(path: &Path) -> io::Result<(Self, Option<String>)> {
        let (table, damaged) = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Table::new(), None),
            Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
            read => match read.map_err(|error| error.to_string()).and_then(|text| read_table(&text)) {
                Ok(table) => (table, None),
                Err(why) => {
                    let aside = state::set_aside_for(path, &why);
                    (Table::new(), Some(format!("{aside}; no capability token counts while it lies there")))
                }
            },
        };
        let lost = damaged.is_some() || state::was_set_aside(path);
        let table = RwLock::new(Arc::new(table));
        Ok((RevokedTokens { path: path.to_owned(), table, editing: Mutex::new(()), lost }, damaged))
    }

    /// Whether nobody knows any more what was revoked.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// The ids, and when each was revoked.
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Revokes an id. False if it was revoked already. `now`: Unix seconds.
    ///
    /// # Errors
    /// There are too many; it can't be written. Then nothing has changed.
    pub fn revoke(&self, id: &str, now: i64) -> Result<bool, Refusal> {
        let _editing = lock(&self.editing);
        let mut table = (*self.table()).clone();
        if table.contains_key(id) {
            return Ok(false);
        }
        // Twice as long as any token counts: one of a clock that is ahead has ended, too.
        table.retain(|_, at| now.saturating_sub(*at) <= 2 * MOST_SECONDS);
        if table.len() >= MOST {
            return Err(Refusal::Full(format!("{MOST} tokens are revoked here, as many as can be kept")));
        }
        table.insert(id.to_owned(), now);
        state::write_durably(&self.path, json!(table).to_string().as_bytes()).map_err(Refusal::Disk)?;
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        Ok(true)
    }
}

fn read_table(text: &str) -> Result<Table, String> {
    crate::wire::parse(text).map_err(|wrong| wrong.to_string())?;
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let members = value.as_object().ok_or("it is no object")?;
    let read = |(id, at): (&String, &Value)| {
        at.as_i64().map(|at| (id.clone(), at)).ok_or_else(|| format!("{id:?} is not whole seconds"))
    };
    members.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_revoked_stays_so_and_a_lost_list_is_told() {
        let top = crate::testing::TempDir::new("revoked-tokens");
        let path = top.path().join("revoked_tokens.json");
        let (revoked, damaged) = RevokedTokens::open(&path).unwrap();
        assert!(damaged.is_none() && !revoked.is_lost());
        assert!(revoked.revoke("a", 10).unwrap() && !revoked.revoke("a", 11).unwrap());
        let (again, _) = RevokedTokens::open(&path).unwrap();
        assert!(again.table().contains_key("a"));
        // Long after any token that it names has ended.
        again.revoke("b", 11 + 2 * MOST_SECONDS).unwrap();
        assert!(!again.table().contains_key("a") && again.table().contains_key("b"));
        fs::write(&path, "{\"a\":").unwrap();
        let (lost, damaged) = RevokedTokens::open(&path).unwrap();
        assert!(damaged.is_some() && lost.is_lost());
        assert!(RevokedTokens::open(&path).unwrap().0.is_lost(), "also at the next start");
    }
}
