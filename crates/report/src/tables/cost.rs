//! What a query cost, as tables.

use crate::terminal::table::{bytes, count, millis, plain, trimmed};
use jaguar_engine::report::{Predicted, Report};

/// The cost of a query in a line.
pub fn line(report: &Report) -> String {
    let (on, pre) = (&report.online, &report.offline);
    let hint: u64 = report.rows.iter().map(|r| r.hint.bytes_down).sum();
    let once = if hint > 0 { format!("; the hint, once: {}", bytes(hint)) } else { String::new() };
    format!(
        "{:.2} s before the input{}, {:.2} s with it; {} up, {} down, {} rounds{once}",
        report.offline_seconds,
        if report.kept.is_some() { " (ahead)" } else { "" },
        report.online_seconds,
        bytes(pre.bytes_up + on.bytes_up),
        bytes(pre.bytes_down + on.bytes_down),
        pre.rounds + on.rounds
    )
}

/// The cost of a query by layer and by stage, and what was predicted, as text.
pub fn tables(report: &Report, predicted: &Predicted) -> String {
    let mut table = plain(
        &[
            "layer",
            "operation",
            "ciphertexts",
            "COTs",
            "up",
            "down",
            "rounds",
            "client ms",
            "server ms",
            "prep. c",
            "prep. s",
        ],
        2,
    );
    for row in &report.rows {
        let (on, pre) = (&row.online, &row.offline);
        if on.bytes_up + on.bytes_down + pre.bytes_up + pre.bytes_down == 0 && row.ciphertexts == 0 {
            continue; // done by each party alone
        }
        table.add_row([
            row.name.clone(),
            row.operation.clone(),
            if row.ciphertexts == 0 { "-".into() } else { format!("{}+{}", row.ciphertexts, row.responses) },
            count(row.cots),
            bytes(on.bytes_up),
            bytes(on.bytes_down),
            count(on.rounds),
            millis(on.client_seconds),
            millis(on.server_seconds),
            millis(pre.client_seconds),
            millis(pre.server_seconds),
        ]);
    }
    let on = &report.online;
    table.add_row([
        "online, all".to_owned(),
        String::new(),
        String::new(),
        count(report.rows.iter().map(|r| r.cots).sum()),
        bytes(on.bytes_up),
        bytes(on.bytes_down),
        count(on.rounds),
        millis(on.client_seconds),
        millis(on.server_seconds),
        millis(report.offline.client_seconds),
        millis(report.offline.server_seconds),
    ]);
    let mut stages =
        plain(&["stage", "up", "down", "rounds", "seconds", "predicted up", "down", "rounds", "seconds"], 1);
    let seconds = |s: Option<f64>| s.map_or_else(|| "-".into(), |s| format!("{s:.2}"));
    let (before, online) = (&predicted.offline, &predicted.online);
    for (name, cost, time, predicted) in [
        ("model (once per connection)", &report.model, None, None),
        (
            "client (hint, base OTs)",
            &report.client,
            (report.hint_seconds > 0.0).then_some(report.hint_seconds),
            None,
        ),
        ("offline (before the input)", &report.offline, Some(report.offline_seconds), Some(before)),
        ("online", &report.online, Some(report.online_seconds), Some(online)),
    ] {
        let mut row = vec![
            name.to_owned(),
            bytes(cost.bytes_up),
            bytes(cost.bytes_down),
            count(cost.rounds),
            seconds(time),
        ];
        if let Some(p) = predicted {
            row.extend([bytes(p.bytes_up), bytes(p.bytes_down), count(p.rounds), seconds(p.seconds)]);
        }
        stages.add_row(row);
    }
    format!("{}\n\n{}", trimmed(&table), trimmed(&stages))
}
