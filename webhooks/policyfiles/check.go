package policyfiles

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/offline"
)

// Problem lists the errors of a policy.
type Problem struct {
	// Policy is the policy's name.
	Policy string
	// Lines are the errors. Each begins with the path of a file, and with line and column if they are known.
	Lines []string
}

// Error returns all lines, below the name of the policy.
func (p *Problem) Error() string {
	return fmt.Sprintf("policy %s has errors:\n%s", p.Policy, strings.Join(p.Lines, "\n"))
}

// Check returns the policies with errors, in their order: those that do not compile or violate the contract, and those whose
// RegoPolicy an API server would reject.
func (c *Collection) Check(ctx context.Context) ([]*Problem, error) {
	return c.check(ctx, catalog.Source.Check)
}

// Remarks returns warnings about valid policies, one line each in the format of [Problem].
func (c *Collection) Remarks() (lines []string) {
	for i, source := range c.Sources() {
		for _, why := range append(c.release.Unserved(&c.Objects[i]), c.release.Remarks(&c.Objects[i])...) {
			lines = append(lines, c.Place(source.Name)+": warning: policy "+source.Name+" is not evaluated for everything in its spec.match: "+why)
		}
		if match := c.Objects[i].Spec.Match; match != nil && catalog.MissesDebugContainers(match) {
			lines = append(lines, c.Place(source.Name)+": note: policy "+source.Name+" is not evaluated for debug containers (kubectl debug): "+
				"spec.match has pods, but not pods/ephemeralcontainers with UPDATE")
		}
		interpreted, compared, unindexed := source.Slower()
		for i := range interpreted {
			interpreted[i].Message = fmt.Sprintf("note: policy %s is not compiled because of %s: its decisions take longer", source.Name, interpreted[i].Message)
		}
		for i := range compared {
			compared[i].Message = "note: " + compared[i].Message + " is not only iterated over here, so a denial compares the metadata of all its objects " +
				"with the cache, which takes longer the more there are"
		}
		for i, place := range unindexed {
			fact, field, _ := strings.Cut(place.Message, " ")
			unindexed[i].Message = fmt.Sprintf("note: %s reads all objects, of which %s is compared here: if the query has \"fields\": {%q: ...}, and the kind in "+
				"spec.reads has indexes: [%s], only those with the value are read", fact, field, field, field)
		}
		if places := slices.Concat(interpreted, compared, unindexed); len(places) > 0 {
			lines = append(lines, c.Explain(source, places)...)
		}
	}
	return lines
}

func (c *Collection) check(ctx context.Context, compiles func(catalog.Source) error) ([]*Problem, error) {
	var problems []*Problem
	for i, source := range c.Sources() {
		lines, err := c.checkSchema(ctx, &c.Objects[i])
		if err != nil {
			return nil, err
		}
		if err := compiles(source); err != nil {
			lines = append(lines, c.Explain(source, err)...)
		}
		if _, read := c.origins[source.Name]; read {
			for _, why := range c.release.Check(&c.Objects[i]) {
				lines = append(lines, c.Place(source.Name)+": "+why)
			}
		}
		lines = append(lines, c.checkPatchable(&c.Objects[i])...)
		if len(lines) > 0 {
			problems = append(problems, &Problem{Policy: source.Name, Lines: lines})
		}
	}
	return problems, nil
}

// checkPatchable returns what a policy patches without being granted it.
func (c *Collection) checkPatchable(object *v1alpha1.RegoPolicy) (lines []string) {
	if !catalog.Patches(object) {
		return nil
	}
	for _, what := range catalog.Unpatchable(object.Spec.Match, grants.Patchable{Kinds: c.Patchable}) {
		lines = append(lines, c.Place(object.Name)+": "+what+" (use --patchable for what a cluster grants)")
	}
	return lines
}

// checkSchema returns the violations of RegoPolicy's schema by a policy that was read from a file.
func (c *Collection) checkSchema(ctx context.Context, object *v1alpha1.RegoPolicy) (lines []string, err error) {
	from, read := c.origins[object.Name]
	if !read {
		return nil, nil
	}
	document := offline.Document{}
	if document.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(object); err != nil {
		return nil, fmt.Errorf("encoding policy %s: %w", object.Name, err)
	}
	known, err := c.release.Kinds()
	if err != nil {
		return nil, err
	}
	found := known.CheckNew(ctx, &document)
	var all utilerrors.Aggregate
	switch {
	case errors.As(found, &all):
		for _, one := range all.Errors() {
			at, about := from, (*field.Error)(nil)
			if errors.As(one, &about) {
				if about.Field == noField {
					continue // reports only that CEL was not evaluated because of the others
				}
				if line := offline.LineOf(from.file, max(from.line, 1), about.Field); line > 0 {
					at.line = line
				}
			}
			lines = append(lines, at.place()+": "+one.Error())
		}
	case found != nil:
		lines = []string{from.place() + ": " + found.Error()}
	}
	return lines, nil
}

// noField is the field of errors that are not about one.
const noField = "<nil>"

// Explain splits the error of one of the collection's sources into lines. Errors about a policy as a whole refer to its RegoPolicy.
func (c *Collection) Explain(source catalog.Source, err error) (lines []string) {
	var all engine.CompileErrors
	if !errors.As(err, &all) {
		return []string{c.Place(source.Name) + ": " + err.Error()}
	}
	for _, e := range all {
		if e.File == source.Name && e.Row == 0 {
			e.File = c.Place(source.Name)
		}
		lines = append(lines, e.Error())
	}
	return lines
}

// Set compiles the policies. All must be valid, and a cluster must be able to have them together.
func (c *Collection) Set(ctx context.Context) (*catalog.Set, error) {
	objects := c.withLibraries()
	for i := range objects {
		if c.Deliberation > 0 {
			objects[i].Spec.TimeoutMilliseconds = c.Deliberation
		}
	}
	set, broken := c.release.sets.Compile(objects, grants.Patchable{Kinds: c.Patchable})
	compiles := func(catalog.Source) error { return nil }
	if broken != nil {
		compiles = catalog.Source.Check // reports the errors with the paths of files
	}
	problems, err := c.check(ctx, compiles)
	if err != nil {
		return nil, err
	}
	if len(problems) == 0 {
		return set, broken // broken may be about several policies, such as two libraries of one name
	}
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return nil, errors.Join(errs...)
}
