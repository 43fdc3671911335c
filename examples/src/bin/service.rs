//! An axum service that counts, measures and traces its requests.
//!
//! ```sh
//! cargo run -p corelocal-examples --bin service -- 127.0.0.1:9000
//! curl http://127.0.0.1:9000/          # a page
//! curl http://127.0.0.1:9000/slow      # takes 50 ms, and makes a dump: slow.1.trace
//! curl http://127.0.0.1:9000/metrics   # for Prometheus
//! corelocal trace view slow.1.trace
//! ```

use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use corelocal::percpu::Counter;
use corelocal::trace::{self, Options};
use corelocal::{event, task_span};
use corelocal_metrics::Handle;

/// Counts on the core that serves the request: no cache line is shared.
static PAGES: Counter = Counter::new();
/// Requests that last longer are dumped with what happened before them.
const SLOW: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let metrics = corelocal_metrics::install()?;
    trace::start(Options::flight_recorder().dump_to("slow.%n.trace"))?;

    let router = Router::new()
        .route("/", get(page))
        .route("/slow", get(slow_page))
        .layer(middleware::from_fn(observe))
        .route("/metrics", get(scrape))
        .with_state(metrics);
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}/", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

/// Around each request: a span, which is current wherever the request runs, and two metrics.
async fn observe(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let span = task_span!(http::request, method = method.as_str(), path = request.uri().path());
    // Dropped last: asks for a dump if the request was slow.
    let _watch = trace::dump_if_slow((), SLOW);
    let response = span.around(next.run(request)).await;
    event!(http::answered, status = response.status().as_u16());
    metrics::counter!("requests", "status" => response.status().as_u16().to_string()).increment(1);
    metrics::histogram!("request_seconds").record(began.elapsed().as_secs_f64());
    response
}

async fn page() -> String {
    PAGES.add(1);
    event!(page::counted);
    format!("page {}\n", PAGES.get())
}

async fn slow_page() -> String {
    let query = tokio::time::sleep(Duration::from_millis(50));
    task_span!(db::query, table = "users").around(query).await;
    page().await
}

async fn scrape(State(metrics): State<Handle>) -> String {
    metrics.render()
}
