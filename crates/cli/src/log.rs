//! A server's log: lines for people, or JSON for programs.
//!
//! Every line is an event of the server's own, with the fields that are written where it is logged: sizes, times, addresses,
//! names. Nothing of a session's content has a name to be logged under, and no library's log is taken in.

use std::fmt;
use std::io::stdout;

use clap::ValueEnum;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// What events are logged under. Others are left out.
pub const TARGET: &str = "jaguar";

/// For whom lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A time, a level, and a sentence.
    #[default]
    Text,
    /// One object of JSON, with all figures as fields.
    Json,
}

/// Logs to standard output from now on. The server goes on when nobody reads it.
pub fn start(format: Format) {
    let ours = filter_fn(|about| about.target() == TARGET);
    let lines = layer().with_writer(stdout).log_internal_errors(false);
    let lines = match format {
        Format::Text => lines.event_format(Sentence).boxed(),
        Format::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_target(false)
            .boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(ours)).init();
}

/// The time, the level and the message alone: what else there is, the message says.
struct Sentence;

impl<S, N> FormatEvent<S, N> for Sentence
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        SystemTime.format_time(&mut to)?;
        write!(to, " {:5} ", event.metadata().level())?;
        let mut message = Message { to: &mut to, result: Ok(()) };
        event.record(&mut message);
        message.result?;
        writeln!(to)
    }
}

struct Message<'a, 'b> {
    to: &'a mut Writer<'b>,
    result: fmt::Result,
}

impl Visit for Message<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.result = write!(self.to, "{value:?}");
        }
    }
}
