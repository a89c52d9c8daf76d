//! Records the metrics, spans and events of the code under test.

use metrics_util::CompositeKey;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Records all metrics of the process, and the spans and events of this thread, until it is dropped.
pub(crate) struct Recorder {
    log: Arc<Mutex<Log>>,
    recorder: Snapshotter,
    _subscriber: tracing::subscriber::DefaultGuard,
    /// A process has one recorder of metrics, so only one test at a time may use it.
    _exclusive: MutexGuard<'static, ()>,
}

/// The spans and events that `tracing` delivered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) spans: Vec<Captured>,
    pub(crate) events: Vec<Captured>,
}

/// A span or an event.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    /// The name of a span, or the message of an event.
    pub(crate) what: String,
    pub(crate) level: Level,
    pub(crate) fields: BTreeMap<&'static str, String>,
    /// The names of the enclosing spans, outermost first.
    pub(crate) within: Vec<&'static str>,
}

impl Captured {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

/// The metrics since the previous call of [`Recorder::figures`], by name and labels, without those that are zero.
pub(crate) type Metrics = BTreeMap<String, Metric>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Metric {
    Count(u64),
    Seconds(Vec<f64>),
    Gauge(f64),
}

impl Recorder {
    /// Records spans and events of all levels.
    pub(crate) fn new() -> Self {
        Self::with_level(LevelFilter::TRACE)
    }

    pub(crate) fn with_level(level: LevelFilter) -> Self {
        static EXCLUSIVE: Mutex<()> = Mutex::new(());
        static RECORDER: OnceLock<Snapshotter> = OnceLock::new();
        let exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let recorder = RECORDER.get_or_init(|| {
            let recorder = DebuggingRecorder::new();
            let snapshotter = recorder.snapshotter();
            recorder.install().expect("the process has no other recorder");
            snapshotter
        });
        // Discard the metrics that an earlier test has left.
        recorder.snapshot();
        let log = Arc::default();
        let registry =
            tracing_subscriber::registry().with(level).with(CaptureLayer { log: Arc::clone(&log) });
        let subscriber = tracing::subscriber::set_default(registry);
        Self { log, recorder: recorder.clone(), _subscriber: subscriber, _exclusive: exclusive }
    }

    /// The metrics since the previous call.
    pub(crate) fn figures(&self) -> Metrics {
        let mut figures = Metrics::new();
        for (key, _, _, value) in self.recorder.snapshot().into_vec() {
            let name = name_of(&key);
            let figure = match value {
                DebugValue::Counter(0) => continue,
                DebugValue::Counter(count) => Metric::Count(count),
                DebugValue::Histogram(seconds) if seconds.is_empty() => continue,
                DebugValue::Histogram(seconds) => {
                    Metric::Seconds(seconds.into_iter().map(Into::into).collect())
                }
                // A snapshot sets every gauge to zero.
                DebugValue::Gauge(gauge) if gauge.into_inner() == 0.0 => continue,
                DebugValue::Gauge(gauge) => Metric::Gauge(gauge.into_inner()),
            };
            figures.insert(name, figure);
        }
        figures
    }

    /// The recorded metrics that have no description.
    pub(crate) fn undescribed(&self) -> Vec<String> {
        let all = self.recorder.snapshot().into_vec().into_iter();
        let without = all.filter(|(_, _, description, _)| description.is_none());
        without.map(|(key, ..)| key.key().name().to_owned()).collect()
    }

    /// The spans and events so far.
    pub(crate) fn log(&self) -> Log {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The events with this message.
    pub(crate) fn events(&self, what: &str) -> Vec<Captured> {
        self.log().events.into_iter().filter(|event| event.what == what).collect()
    }

    /// The spans with this name.
    pub(crate) fn spans(&self, name: &str) -> Vec<Captured> {
        self.log().spans.into_iter().filter(|span| span.what == name).collect()
    }
}

/// The name of a metric, with its labels.
fn name_of(key: &CompositeKey) -> String {
    let labels: Vec<_> =
        key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    match labels.as_slice() {
        [] => key.key().name().to_owned(),
        labels => format!("{}{{{}}}", key.key().name(), labels.join(",")),
    }
}

/// A layer of `tracing` that copies all spans and events into the log.
struct CaptureLayer {
    log: Arc<Mutex<Log>>,
}

/// The index of a span in the log.
struct SpanIndex(usize);

impl CaptureLayer {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for CaptureLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let span = context.span(id).expect("the span was just created");
        let mut log = self.log();
        span.extensions_mut().insert(SpanIndex(log.spans.len()));
        log.spans.push(Captured {
            what: span.name().to_owned(),
            level: *span.metadata().level(),
            fields: fields.named,
            within: span
                .scope()
                .skip(1)
                .map(|span| span.name())
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect(),
        });
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        record.record(&mut fields);
        let span = context.span(id).expect("the span is open");
        let extensions = span.extensions();
        let SpanIndex(index) = extensions.get().expect("on_new_span has stored the index");
        self.log().spans[*index].fields.extend(fields.named);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let scope = context.event_scope(event).into_iter();
        self.log().events.push(Captured {
            what: fields.message,
            level: *event.metadata().level(),
            fields: fields.named,
            within: scope.flat_map(|scope| scope.from_root()).map(|span| span.name()).collect(),
        });
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    named: BTreeMap<&'static str, String>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            name => drop(self.named.insert(name, text)),
        }
    }
}

impl fmt::Display for Log {
    /// All spans, then all events, one per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in self.spans.iter().chain(&self.events) {
            writeln!(f, "{} {} {:?} {:?}", entry.level, entry.what, entry.fields, entry.within)?;
        }
        Ok(())
    }
}
