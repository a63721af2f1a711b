//! How often right classes come out, as a table.

use jaguar::reports::accuracy::Score;
use jaguar::reports::terminal::table::{plain, trimmed};

/// How many pictures are in memory at once, by thread.
pub const AT_ONCE: usize = 4;

/// A row of the table: what it is of, and what was found.
pub type Measured<'a> = (&'static str, &'a Score);

/// How often the right class was among the first of each, and how often it was that of the network which `same` names.
pub fn table(rows: &[Measured<'_>], tops: &[usize], same: &str) -> String {
    let names: Vec<String> = tops.iter().map(|k| format!("top-{k}")).collect();
    let mut header = vec!["", "pictures"];
    header.extend(names.iter().map(String::as_str));
    header.push(same);
    let mut table = plain(&header, 1);
    for (name, found) in rows {
        let mut row = vec![(*name).to_owned(), found.pictures.to_string()];
        row.extend(found.top.iter().map(|(k, part)| {
            let [low, high] = found.interval[k].map(|part| 100.0 * part);
            format!("{:.2} % ({low:.1} to {high:.1})", 100.0 * part)
        }));
        row.push(format!("{:.2} %", 100.0 * found.same_class));
        table.add_row(row);
    }
    trimmed(&table)
}
