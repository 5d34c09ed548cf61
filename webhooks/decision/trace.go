package decision

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// trace adds what was decided to the span of the request, and a span for each policy. Attributes are those of the metrics, never names of
// objects or users.
func (d *Decision) trace(ctx context.Context, allowed bool) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	request := d.Review.Request
	span.SetAttributes(
		attribute.String("sallyport.endpoint", d.Endpoint), attribute.String("sallyport.operation", string(request.Operation)),
		attribute.String("sallyport.group", request.Resource.Group), attribute.String("sallyport.resource", request.Resource.Resource),
		attribute.String("sallyport.subresource", request.SubResource), attribute.Bool("sallyport.allowed", allowed),
	)
	tracer := span.TracerProvider().Tracer("sallyport.dev/sallyport/webhooks/decision")
	for _, v := range d.Verdicts() {
		reasons := []string{}
		for _, denial := range v.Denials() {
			reasons = append(reasons, denial.Reason)
		}
		_, policy := tracer.Start(ctx, "policy", trace.WithTimestamp(d.At), trace.WithAttributes(
			attribute.String("sallyport.policy", v.Policy.Name()), attribute.String("sallyport.mode", string(v.Mode)),
			attribute.String("sallyport.verdict", v.Result()), attribute.StringSlice("sallyport.reasons", reasons),
		))
		policy.End(trace.WithTimestamp(d.At.Add(v.Took)))
	}
}
