package manager

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// tracesPatience is how long the end of the manager waits for a collector.
const tracesPatience = 2 * time.Second

// traces reports whether the environment has an endpoint for traces.
func traces() bool {
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// startTraces exports spans by OTLP if the environment has an endpoint. OpenTelemetry defines the variables:
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/. A collector that does not answer delays nothing: its
// spans are dropped.
func startTraces(ctx context.Context, replica string) (stop func(), err error) {
	if !traces() {
		return func() {}, nil
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("setting up the export of traces: %w", err)
	}
	of, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "sallyport"), attribute.String("service.instance.id", replica)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("setting up the export of traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(of))
	otel.SetTracerProvider(provider)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), tracesPatience)
		defer cancel()
		_ = provider.Shutdown(ctx) // what a collector did not take is lost, as while it was away
	}, nil
}

// traced adds a span for each request to a handler. Everybody who reaches the port can send a traceparent: the span has a trace and a
// sampling decision of its own, with a link to what was sent. Without an endpoint it adds nothing: even a span that is not recorded takes CPU time.
func traced(handle func(path string, handler http.Handler)) func(path string, handler http.Handler) {
	if !traces() {
		return handle
	}
	return func(path string, handler http.Handler) {
		handle(path, otelhttp.NewHandler(handler, "review", otelhttp.WithPropagators(propagation.TraceContext{}),
			otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }),
			otelhttp.WithSpanNameFormatter(func(operation string, _ *http.Request) string { return operation })))
	}
}
