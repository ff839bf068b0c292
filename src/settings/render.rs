//! The table of settings for people: `--help`, the README, `--check-config`, the boot log.

use std::fmt::Write as _;

use super::Settings;
use super::table::{Setting, TABLE, Unset};

/// The settings part of `--help`: name, default and unit on one line, the meaning below.
#[must_use]
pub fn help() -> String {
    let mut text = String::new();
    for row in TABLE {
        let default = default_with_unit(row);
        let aliases = aliases(row, "");
        let meaning = row.meaning.replace('`', "");
        writeln!(text, "  {}{aliases} [{default}]\n      {meaning}", row.name).expect("a string takes everything");
    }
    text
}

/// The README's table.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from("| variable | default | meaning |\n|---|---|---|\n");
    for row in TABLE {
        let default = match row.unset {
            Unset::Value(_) if row.unit.is_empty() => format!("`{}`", row.default_text()),
            Unset::Value(_) => format!("`{}` {}", row.default_text(), row.unit),
            Unset::Derived(words) => words.to_owned(),
        };
        let aliases = aliases(row, "`");
        writeln!(text, "| `{}`{aliases} | {default} | {} |", row.name, row.meaning).expect("a string takes everything");
    }
    text
}

/// Every setting in force as `NAME=value`, and in words what is worked out at boot.
#[must_use]
pub fn effective(settings: &Settings) -> String {
    let mut text = String::new();
    for row in TABLE {
        match row.kind.show(settings) {
            Some(value) if row.kind.is_secret() => writeln!(text, "# {}: set {value}", row.name),
            Some(value) => writeln!(text, "{}={value}", row.name),
            None => writeln!(text, "# {}: {}", row.name, row.default_text()),
        }
        .expect("a string takes everything");
    }
    text
}

/// Name and value of every setting that is not at its default: a line of the boot log each.
#[must_use]
pub fn non_default(settings: &Settings) -> Vec<(&'static str, String)> {
    let defaults = Settings::default();
    TABLE
        .iter()
        .filter_map(|row| {
            let value = row.kind.show(settings)?;
            (row.kind.show(&defaults).as_ref() != Some(&value)).then_some((row.name, value))
        })
        .collect()
}

fn default_with_unit(row: &Setting) -> String {
    match row.unset {
        Unset::Value(value) if !row.unit.is_empty() => format!("{value} {}", row.unit),
        _ => row.default_text().to_owned(),
    }
}

/// The other names of a setting in brackets, each between `quote`s; nothing when there are none.
fn aliases(row: &Setting, quote: &str) -> String {
    if row.aliases.is_empty() {
        return String::new();
    }
    let names: Vec<_> = row.aliases.iter().map(|name| format!("{quote}{name}{quote}")).collect();
    format!(" (or {})", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_setting_with_its_default() {
        let help = help();
        for row in TABLE {
            assert!(help.contains(row.name) && help.contains(row.default_text()));
        }
        assert!(help.contains("QUEEN_BIND_ADDR (or HOST) [0.0.0.0]"));
        assert!(help.contains("QUEEN_SHUTDOWN_GRACE_MS [10000 ms]"));
    }

    #[test]
    fn what_effective_prints_reads_back_to_the_same_settings() {
        let vars = [("QUEEN_DATA_CPUS", "0-1"), ("RUST_LOG", "warn"), ("PORT", "0")];
        let lookup = |name: &str| {
            let found = vars.iter().find(|(var, _)| *var == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let printed = effective(&Settings::from_env(lookup).unwrap());
        let reread = Settings::from_env(|name| {
            let line = printed.lines().find(|line| line.starts_with(&format!("{name}=")));
            line.map(|line| line[name.len() + 1..].to_owned())
        });
        assert_eq!(effective(&reread.unwrap()), printed);
    }

    #[test]
    fn only_what_differs_from_the_default_is_named_at_boot() {
        let settings = Settings::from_env(|name| match name {
            "PORT" => Some("7000".into()),
            "QUEEN_LOG_JSON" => Some("no".into()),
            "QUEEN_STORE_CPU" => Some("1".into()),
            _ => None,
        });
        assert_eq!(non_default(&settings.unwrap()), [("PORT", "7000".to_owned()), ("QUEEN_STORE_CPU", "1".to_owned())]);
    }

    #[test]
    fn the_readme_holds_the_table_as_it_is_generated() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
        let readme = std::fs::read_to_string(readme).expect("there is a README");
        assert!(
            readme.contains(&markdown()),
            "replace the README's table of settings by what `queen --help-markdown` prints"
        );
    }
}
