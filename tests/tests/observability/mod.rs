//! What a piece of work has told: metrics, spans and events.

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

/// Listens to what is told on this thread, until it is dropped.
pub(crate) struct Recorder {
    log: Arc<Mutex<Log>>,
    recorder: Snapshotter,
    _subscriber: tracing::subscriber::DefaultGuard,
    /// There is one recorder of metrics in a process: tests that listen take turns.
    _turn: MutexGuard<'static, ()>,
}

/// What was told to `tracing`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) spans: Vec<Captured>,
    pub(crate) events: Vec<Captured>,
}

/// A span or an event.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    /// A span's name, or an event's message.
    pub(crate) what: String,
    pub(crate) level: Level,
    pub(crate) fields: BTreeMap<&'static str, String>,
    /// The spans around it, from the outermost.
    pub(crate) within: Vec<&'static str>,
}

impl Captured {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

/// What was counted and measured since the last look, by name and labels; nothing that is zero.
pub(crate) type Metrics = BTreeMap<String, Metric>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Metric {
    Count(u64),
    Seconds(Vec<f64>),
}

impl Recorder {
    /// Hears everything.
    pub(crate) fn new() -> Self {
        Self::with_level(LevelFilter::TRACE)
    }

    pub(crate) fn with_level(level: LevelFilter) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        static RECORDER: OnceLock<Snapshotter> = OnceLock::new();
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let recorder = RECORDER.get_or_init(|| {
            let recorder = DebuggingRecorder::new();
            let snapshotter = recorder.snapshotter();
            recorder.install().expect("nobody else records");
            snapshotter
        });
        // What a test that failed has left behind is nobody's business.
        recorder.snapshot();
        let log = Arc::default();
        let registry =
            tracing_subscriber::registry().with(level).with(CaptureLayer { log: Arc::clone(&log) });
        let subscriber = tracing::subscriber::set_default(registry);
        Self { log, recorder: recorder.clone(), _subscriber: subscriber, _turn: turn }
    }

    /// What has been counted and measured since the last look.
    pub(crate) fn figures(&self) -> Metrics {
        let mut figures = Metrics::new();
        for (key, _, _, value) in self.recorder.snapshot().into_vec() {
            let labels: Vec<_> =
                key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let name = match labels.as_slice() {
                [] => key.key().name().to_owned(),
                labels => format!("{}{{{}}}", key.key().name(), labels.join(",")),
            };
            let figure = match value {
                DebugValue::Counter(0) => continue,
                DebugValue::Counter(count) => Metric::Count(count),
                DebugValue::Histogram(seconds) if seconds.is_empty() => continue,
                DebugValue::Histogram(seconds) => {
                    Metric::Seconds(seconds.into_iter().map(Into::into).collect())
                }
                DebugValue::Gauge(gauge) => panic!("{name} is a gauge: {gauge}"),
            };
            figures.insert(name, figure);
        }
        figures
    }

    /// What has been told to `tracing` so far.
    pub(crate) fn log(&self) -> Log {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The events with this message.
    pub(crate) fn events(&self, what: &str) -> Vec<Captured> {
        self.log().events.into_iter().filter(|event| event.what == what).collect()
    }

    /// The spans of this name.
    pub(crate) fn spans(&self, name: &str) -> Vec<Captured> {
        self.log().spans.into_iter().filter(|span| span.what == name).collect()
    }
}

/// Writes down what it hears.
struct CaptureLayer {
    log: Arc<Mutex<Log>>,
}

/// A span's place in the log.
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
        let span = context.span(id).expect("it is new");
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
        let span = context.span(id).expect("it is open");
        let extensions = span.extensions();
        let SpanIndex(place) = extensions.get().expect("it was seen when it was new");
        self.log().spans[*place].fields.extend(fields.named);
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
    /// Everything that a log file would have.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for told in self.spans.iter().chain(&self.events) {
            writeln!(f, "{} {} {:?} {:?}", told.level, told.what, told.fields, told.within)?;
        }
        Ok(())
    }
}
