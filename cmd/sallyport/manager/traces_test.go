package manager

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// sink is a collector.
type sink struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*tracev1.Span
}

func (s *sink) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, in := range of.ScopeSpans {
			s.spans = append(s.spans, in.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// TestTraces has one export, because OpenTelemetry's own tracers keep the first provider that is set.
func TestTraces(t *testing.T) {
	stop, err := startTraces(t.Context(), "sallyport-0")
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if _, span := otel.Tracer("x").Start(t.Context(), "x"); span.IsRecording() {
		t.Error("without an endpoint a span is recorded")
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, server := &sink{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_on")
	t.Cleanup(func() { otel.SetTracerProvider(noop.NewTracerProvider()) })
	if stop, err = startTraces(t.Context(), "sallyport-0"); err != nil {
		t.Fatal(err)
	}
	requested("00")
	requested("01")
	called(t.Context())
	called(t.Context())
	stop()

	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spans) != 4 {
		t.Fatalf("there are %d spans: %v", len(s.spans), s.spans)
	}
	for _, span := range s.spans {
		switch span.Name {
		case "review":
			isOwn(t, span)
		default:
			isOfOperation(t, span)
		}
	}
}

const forged = "0af7651916cd43dd8448eb211c80319c"

// requested is a request with a traceparent.
func requested(flags string) {
	var handler http.Handler
	traced(func(_ string, h http.Handler) { handler = h })("/validate", http.NotFoundHandler())
	request := httptest.NewRequest(http.MethodPost, "/validate", nil)
	request.Header.Set("traceparent", "00-"+forged+"-b7ad6b7169203331-"+flags)
	handler.ServeHTTP(httptest.NewRecorder(), request)
}

// isOwn: a client that sends a traceparent chooses neither the trace nor whether it is sampled.
func isOwn(t *testing.T, span *tracev1.Span) {
	t.Helper()
	if id := trace.TraceID(span.TraceId).String(); len(span.ParentSpanId) != 0 || id == forged {
		t.Errorf("a span of trace %s with parent %x", id, span.ParentSpanId)
	}
	if len(span.Links) != 1 || trace.TraceID(span.Links[0].TraceId).String() != forged {
		t.Errorf("links to %v", span.Links)
	}
}

const secret = "password"

// called is a call for an operation.
func called(ctx context.Context) {
	_ = runtime.Trace("vsphere")(runtime.OfOperation(ctx, "3f0c8e5a-7c1d-4f3b-9a61-2b8d5e6f7a80"), &runtime.Call{Verb: runtime.VerbPowerOn, Machine: runtime.Machine{InstanceID: secret}},
		func(context.Context) error { return runtime.NewPermission(errors.New(secret), secret) })
}

// isOfOperation: calls are in the trace of their operation, also those of another leader, and say nothing but their outcome.
func isOfOperation(t *testing.T, span *tracev1.Span) {
	t.Helper()
	if id := trace.TraceID(span.TraceId).String(); id != "3f0c8e5a7c1d4f3b9a612b8d5e6f7a80" || span.Name != "PowerOn" {
		t.Errorf("span %s of trace %s", span.Name, id)
	}
	if text := span.String(); span.Status.Message != "permission" || strings.Contains(text, secret) {
		t.Errorf("the span says %s", text)
	}
}
