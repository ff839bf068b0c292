//! The typo guard: variables that look like ours and are not.

use super::table::TABLE;

/// The share of a name that may be mistyped for a guess to be worth printing.
const SIMILARITY_MIN: f64 = 0.7;

/// A variable that begins with `QUEEN_` or `JWT_` and names no setting.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// The variable.
    pub name: String,
    /// The setting whose name is nearest, if one is near.
    pub nearest: Option<&'static str>,
}

/// Those of `names` that begin with `QUEEN_` or `JWT_` and name no setting, in the order they came.
pub fn unknown_names(names: impl Iterator<Item = String>) -> Vec<UnknownName> {
    let known = || TABLE.iter().flat_map(|row| std::iter::once(row.name).chain(row.aliases.iter().copied()));
    names
        .filter(|name| {
            (name.starts_with("QUEEN_") || name.starts_with("JWT_")) && known().all(|setting| setting != name)
        })
        .map(|name| {
            let nearest = known()
                .map(|setting| (strsim::normalized_damerau_levenshtein(&name, setting), setting))
                .max_by(|one, other| one.0.total_cmp(&other.0))
                .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
                .map(|(_, setting)| setting);
            UnknownName { name, nearest }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(names: &[&str]) -> Vec<UnknownName> {
        unknown_names(names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn a_mistyped_name_comes_with_the_nearest_setting() {
        assert_eq!(
            unknown(&["QUEEN_DATADIR", "QUEEN_EPHEMERAL_LEASE_SECONDS"]),
            [
                UnknownName { name: "QUEEN_DATADIR".into(), nearest: Some("QUEEN_DATA_DIR") },
                UnknownName { name: "QUEEN_EPHEMERAL_LEASE_SECONDS".into(), nearest: Some("QUEEN_EPHEMERAL_LEASE_S") },
            ]
        );
    }

    #[test]
    fn a_name_near_to_nothing_is_named_without_a_guess() {
        assert_eq!(unknown(&["QUEEN_X"])[0].nearest, None);
    }

    #[test]
    fn settings_and_other_peoples_variables_are_left_alone() {
        assert_eq!(unknown(&["QUEEN_DATA_DIR", "PATH", "HOST", "BEE_QUEEN_X"]), []);
    }
}
