package decision

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

const (
	// longestOverride is how far ahead an override may end: an hour plus clock skew.
	longestOverride = time.Hour + time.Minute
	// overrideTimeout is the timeout for checking an override.
	overrideTimeout = 2 * time.Second
)

// applyOverride applies the override of a denied request to the policy that it names. Requests that are not denied cost no reads.
func (d evaluation) applyOverride(ctx context.Context) {
	var find func(context.Context, engine.Reader) (CarriedOverride, error)
	switch {
	case d.Allowed():
		return
	case d.Endpoint == Validating:
		find = d.overrideOfObject
	case d.Endpoint == Arbitrating && d.about(operations):
		find = d.overrideOfOperation
	default: // a mutation cannot be left out (see Answer), and an audit ignores overrides
		return
	}
	ctx, cancel := context.WithTimeout(ctx, overrideTimeout)
	defer cancel()
	reader := d.recording(d.reader)
	c, err := find(ctx, reader)
	if err == nil && c.Text != "" {
		err = d.grant(ctx, reader, &c)
	}
	c.ignored = err
	d.carried = c
}

// overrideOfObject returns the override from the annotation of the new object, for a deletion of the stored object,
// and for a subresource of its parent.
func (d evaluation) overrideOfObject(ctx context.Context, reader engine.Reader) (c CarriedOverride, err error) {
	c = CarriedOverride{field: "annotation " + v1alpha1.AnnotationOverride, at: d.At}
	request := d.Review.Request
	old, object := d.Review.Document.Get("oldObject"), d.Review.Document.Get("object")
	switch {
	case request.SubResource != "":
		if object, err = ParentOf(ctx, reader); err != nil {
			return c, fmt.Errorf("%w: reading the object that %s belongs to: %w", errOverrideUnknown, request.SubResource, err)
		}
		c.On = ReferenceTo(object)
		c.Seen = sameState(object, old)
	case request.Operation == admissionv1.Create:
		c.On = ReferenceTo(object)
		c.Text = OverrideIn(object)
		return c, nil
	case request.Operation == admissionv1.Delete:
		c.On = ReferenceTo(old)
		if object, err = c.storedMetadata(ctx, reader, old); err != nil {
			return c, fmt.Errorf("%w: reading the object to delete: %w", errOverrideUnknown, err)
		}
	default:
		c.On = ReferenceTo(old)
	}
	c.Text, c.uid = OverrideIn(object), c.On.UID
	return c, nil
}

// storedMetadata returns the live metadata of an object to delete if it has an override. If Sallyport may not read the object, the review's
// copy is used: either it is from the API server, or nothing is deleted.
func (c *CarriedOverride) storedMetadata(ctx context.Context, reader engine.Reader, old engine.Value) (engine.Value, error) {
	if OverrideIn(old) == "" {
		return old, nil
	}
	live, err := reader.Read(ctx, MetadataQuery("object", &c.On))
	switch {
	case errors.Is(err, facts.ErrUnreadable):
		return old, nil
	case err != nil || ReferenceTo(live.Value).UID != c.On.UID:
		return engine.Value{}, err
	}
	c.Seen = sameState(live.Value, old)
	return live.Value, nil
}

// overrideOfOperation returns the override with which an operation was created. The operation's annotation does not count: any user who may
// change it could use the creator's right. The override is checked at the time of the request, because an operation that was
// admitted in time may wait for its turn.
func (d evaluation) overrideOfOperation(context.Context, engine.Reader) (c CarriedOverride, err error) {
	operation := d.Review.Document.Get("object")
	spec := operation.Get("spec")
	c.field, c.On = "spec.override", ReferenceTo(operation)
	c.On.ResourceVersion = ""
	text := spec.Get("override").Text()
	if spec.Get("requestedBy").IsNull() || text == "" {
		return c, nil
	}
	requestedAt := spec.Get("requestedAt").Text()
	if c.at, err = time.Parse(engine.TimeFormat, requestedAt); err != nil {
		return c, fmt.Errorf("spec.requestedAt=%s is not a valid time", requestedAt)
	}
	c.Text = text
	return c, nil
}

// grant applies an override, or returns why it does not count.
func (d evaluation) grant(ctx context.Context, reader engine.Reader, c *CarriedOverride) error {
	o, err := v1alpha1.ParseOverride(c.Text)
	if err != nil {
		return err
	}
	if o.By != d.Review.Request.UserInfo.Username {
		return errors.New("by= is not the user who sent this request")
	}
	v, err := d.denyingVerdict(o.Policy)
	if err != nil {
		return err
	}
	if err := c.check(o); err != nil {
		return err
	}
	if final := v.finalDenial(); final != nil {
		return fmt.Errorf("%s cannot be overridden", final.Title())
	}
	if err := mayOverride(ctx, reader, v.Policy, &d.Review.Request.UserInfo); err != nil {
		return err
	}
	v.Override = &Override{
		By: o.By, Until: o.Until.UTC().Format(time.RFC3339), Reason: o.Reason,
	}
	return nil
}

// denyingVerdict returns the result of the policy that the override names, if that policy denies the request.
func (d evaluation) denyingVerdict(policy string) (*Verdict, error) {
	if d.set.Policy(policy) == nil {
		return nil, fmt.Errorf("policy %q does not exist", policy)
	}
	var denying []string
	for i := range d.verdicts {
		v := &d.verdicts[i]
		if !v.Denies() {
			continue
		}
		if v.Policy.Name() == policy {
			return v, nil
		}
		denying = append(denying, v.Policy.Name())
	}
	return nil, fmt.Errorf("the override names policy %s, but %s refused the request", policy, strings.Join(denying, ", "))
}

// mayOverride asks the API server whether the requester may override the policy. It does not use the policies' facts.
func mayOverride(ctx context.Context, reader engine.Reader, p *catalog.Policy, who *authenticationv1.UserInfo) error {
	switch {
	case p.Override == v1alpha1.OverrideNobody:
		return fmt.Errorf("policy %s cannot be overridden (spec.override is %s)", p.Name(), p.Override)
	case p.Override == v1alpha1.OverrideUsers && strings.HasPrefix(who.Username, serviceAccount):
		return fmt.Errorf("service accounts cannot override policy %s (spec.override is %s)", p.Name(), p.Override)
	}
	answer, err := reader.Read(ctx, engine.Query{Fact: "override", Live: true, Access: &engine.Access{
		Verb: "override", Group: v1alpha1.GroupName, Resource: regoPolicy.Resource(), Name: p.Name(),
	}})
	var held any
	if err == nil {
		held, err = answer.Value.Decode()
	}
	if err != nil {
		return fmt.Errorf("%w: asking whether %s may override policy %s: %w", errOverrideUnknown, who.Username, p.Name(), err)
	}
	if held != true {
		return fmt.Errorf("%s may not override policy %s: missing the verb override on regopolicies.%s %[2]s",
			who.Username, p.Name(), v1alpha1.GroupName)
	}
	return nil
}

// check checks UID and expiry. An override for the creation of an object, for another object that this one is a copy of, or one
// left over from before, does not count.
func (c *CarriedOverride) check(o *v1alpha1.Override) error {
	switch {
	case o.UID != "" && c.uid == "":
		return errors.New("uid= must be empty, because the object is being created")
	case o.UID != c.uid: // the error omits the UID: it is only for readers of the object
		return errors.New("uid= must be the UID of this object (kubectl get -o jsonpath={.metadata.uid})")
	case !o.Until.After(c.at):
		return fmt.Errorf("until=%s has passed (now %s)", o.Until.Format(time.RFC3339), c.at.UTC().Format(time.RFC3339))
	case o.Until.After(c.at.Add(longestOverride)):
		return fmt.Errorf("until=%s is more than an hour ahead (now %s)", o.Until.Format(time.RFC3339), c.at.UTC().Format(time.RFC3339))
	}
	return nil
}
