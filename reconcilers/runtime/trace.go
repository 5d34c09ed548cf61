package runtime

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

var tracer = otel.Tracer("sallyport.dev/sallyport/reconcilers/runtime")

// Trace returns an interceptor that adds a span for each call of the runtime with that name, such as vsphere. Like the metrics, spans
// have the verb and the outcome, never the name of a machine or the text of an error.
func Trace(name string) Interceptor {
	return func(ctx context.Context, call *Call, next func(context.Context) error) error {
		ctx, span := tracer.Start(ctx, string(call.Verb), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("sallyport.runtime", name)))
		defer span.End()
		err := next(ctx)
		is := outcome(err)
		span.SetAttributes(attribute.String("sallyport.outcome", is))
		if err != nil {
			span.SetStatus(codes.Error, is)
		}
		return err
	}
}

// OfOperation returns a context whose spans are in the trace of an operation: its ID is the UID of the operation. An operation takes
// many reconciles, also of several leaders, and all find its trace by this ID. It is always sampled.
func OfOperation(ctx context.Context, id string) context.Context {
	of, err := trace.TraceIDFromHex(strings.ReplaceAll(id, "-", ""))
	if err != nil {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: of, SpanID: trace.SpanID(of[:8]), TraceFlags: trace.FlagsSampled,
	}))
}
