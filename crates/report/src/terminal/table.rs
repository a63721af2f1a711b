//! Tables for people, and numbers in them.

use comfy_table::{CellAlignment, Table, presets::NOTHING};

/// A table without borders; the columns from `numbers_from` on are numbers.
pub fn plain(header: &[&str], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header.iter().copied());
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if i >= numbers_from {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Bytes in the unit that suits: 1234567 as `1.18 MiB`.
pub fn bytes(n: u64) -> String {
    match n {
        0 => "-".into(),
        1..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{:.1} KiB", n as f64 / 1024.0),
        _ => format!("{:.2} MiB", n as f64 / 1_048_576.0),
    }
}

/// Seconds as milliseconds: 0.0123 as `12.3`.
pub(crate) fn millis(seconds: f64) -> String {
    if seconds < 5e-5 { "-".into() } else { format!("{:.1}", seconds * 1e3) }
}

/// A count in four digits or so: 1234567 as `1235k`.
pub fn count(n: u64) -> String {
    match n {
        0 => "-".into(),
        1..10_000 => n.to_string(),
        10_000..10_000_000 => format!("{:.0}k", n as f64 / 1e3),
        _ => format!("{:.1}M", n as f64 / 1e6),
    }
}

/// The table without spaces at the ends of lines.
pub fn trimmed(table: &Table) -> String {
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
