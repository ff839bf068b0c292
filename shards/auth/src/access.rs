//! What routes ask for, and which roles have it.

use std::fmt;

/// What a route asks of whoever calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Any valid token, also one without a role.
    Open,
    /// To look at what is there: status, listings, messages.
    Read,
    /// To push, and nothing else.
    Push,
    /// To do what clients do: pop, ack, declare, and all of the above.
    ReadWrite,
    /// To run the node: other tenants' grants, deletions, switches.
    Admin,
}

/// The roles of a token: any number of the four, which add up.
///
/// | role | gives |
/// |---|---|
/// | `read-only` | [`Access::Read`] |
/// | `write-only` | [`Access::Push`] |
/// | `read-write` | both, and [`Access::ReadWrite`] |
/// | `admin` | everything |
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Roles(u8);

const READ_ONLY: u8 = 1;
const WRITE_ONLY: u8 = 1 << 1;
const READ_WRITE: u8 = 1 << 2;
const ADMIN: u8 = 1 << 3;

/// Every role with its word, the strongest first.
const WORDS: [(u8, &str); 4] =
    [(ADMIN, "admin"), (READ_WRITE, "read-write"), (WRITE_ONLY, "write-only"), (READ_ONLY, "read-only")];

impl Roles {
    /// No role at all: only [`Access::Open`].
    pub const NONE: Self = Self(0);

    /// The roles that these words name. One that names no role, in these letters, adds nothing.
    pub fn from_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        Self(words.into_iter().map(role_of).fold(0, |roles, role| roles | role))
    }

    /// Whether one of the roles has this access.
    #[must_use]
    pub fn allow(self, access: Access) -> bool {
        let enough = match access {
            Access::Open => return true,
            Access::Read => READ_ONLY | READ_WRITE | ADMIN,
            Access::Push => WRITE_ONLY | READ_WRITE | ADMIN,
            Access::ReadWrite => READ_WRITE | ADMIN,
            Access::Admin => ADMIN,
        };
        self.0 & enough != 0
    }

    /// The word of the strongest role, or `none`.
    #[must_use]
    pub fn strongest(self) -> &'static str {
        self.words().next().unwrap_or("none")
    }

    fn words(self) -> impl Iterator<Item = &'static str> {
        WORDS.iter().filter(move |(role, _)| self.0 & role != 0).map(|(_, word)| *word)
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.words()).finish()
    }
}

/// The bit of the role that a word names, or none. Words are taken as they are: one that is nearly a role's may be
/// another system's.
fn role_of(word: &str) -> u8 {
    WORDS.iter().find(|(_, known)| *known == word).map_or(0, |(role, _)| *role)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Access; 5] = [Access::Open, Access::Read, Access::Push, Access::ReadWrite, Access::Admin];

    fn allowed(words: &[&str]) -> Vec<Access> {
        let roles = Roles::from_words(words.iter().copied());
        ALL.into_iter().filter(|access| roles.allow(*access)).collect()
    }

    #[test]
    fn each_role_has_what_the_table_gives_it() {
        use Access::{Open, Push, Read, ReadWrite};
        assert_eq!(allowed(&["read-only"]), [Open, Read]);
        assert_eq!(allowed(&["write-only"]), [Open, Push]);
        assert_eq!(allowed(&["read-write"]), [Open, Read, Push, ReadWrite]);
        assert_eq!(allowed(&["admin"]), ALL);
    }

    #[test]
    fn roles_add_up_and_make_no_stronger_one() {
        assert_eq!(allowed(&["read-only", "write-only"]), [Access::Open, Access::Read, Access::Push]);
        assert_eq!(allowed(&["read-only", "admin"]), ALL);
    }

    #[test]
    fn a_word_that_names_no_role_gives_nothing_but_what_is_open() {
        for words in [
            &[][..],
            &["root"],
            &["", "-", "adminn", "read", "admin admin", "*"],
            &["Admin", "ADMIN", "read_only", " admin "],
        ] {
            assert_eq!(allowed(words), [Access::Open], "{words:?}");
        }
    }

    #[test]
    fn the_strongest_role_speaks_for_all() {
        let strongest = |words: &[&str]| Roles::from_words(words.iter().copied()).strongest();
        assert_eq!(strongest(&["read-only", "admin"]), "admin");
        assert_eq!(strongest(&["write-only", "read-write"]), "read-write");
        assert_eq!(strongest(&["guest"]), "none");
        assert_eq!(format!("{:?}", Roles::from_words(["read-only", "admin"])), r#"{"admin", "read-only"}"#);
    }
}
