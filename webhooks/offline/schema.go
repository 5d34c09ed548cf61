package offline

import (
	"context"
	"fmt"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// This file does what the API server's handler and strategy of custom resources do around the packages that hold the schema,
// defaults and CEL. They are not imported themselves: they come with the whole of its storage.

// decode makes of an object what the API server makes of it when it reads it: fields that the schema does not have are left
// out and named, defaults are filled in.
func (s *kindSchema) decode(u *unstructured.Unstructured) (unknown []string, err error) {
	unknown, err = s.prune(u)
	if err == nil {
		s.setDefaults(u)
	}
	return unknown, err
}

func (s *kindSchema) setDefaults(u *unstructured.Unstructured) {
	defaulting.Default(u.Object, s.Structural)
}

func (s *kindSchema) prune(u *unstructured.Unstructured) (unknown []string, err error) {
	apiVersion, kind := u.GetAPIVersion(), u.GetKind()
	metadata, found, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, err
	}
	unknown = append(unknown, pruning.PruneWithOptions(
		u.Object, s.Structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s.Structural)
	coerceErr, paths := objectmeta.CoerceWithOptions(nil, u.Object, s.Structural, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if coerceErr != nil {
		return nil, coerceErr
	}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	if found {
		err = objectmeta.SetObjectMeta(u.Object, metadata)
	}
	return append(unknown, paths...), err
}

// CheckNew says what keeps the API server from taking an object of one of our kinds, whatever policies say; nil if nothing does.
func (k *Kinds) CheckNew(ctx context.Context, d *Document) error {
	is, err := k.of(d)
	if err != nil {
		return err
	}
	if is.schema == nil {
		return fmt.Errorf("no schema of %s is available", is.Kind)
	}
	u := (&unstructured.Unstructured{Object: d.Object}).DeepCopy()
	if _, err := is.schema.decode(u); err != nil {
		return err
	}
	return is.schema.validateNew(ctx, is, u).ToAggregate()
}

// validateNew validates an object before its creation.
func (s *kindSchema) validateNew(ctx context.Context, k *kind, u *unstructured.Unstructured) field.ErrorList {
	metadata := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMetaAccessor(u, k.namespaced, apivalidation.NameIsDNSSubdomain, metadata)
	errs = append(errs, sorted(validation.ValidateCustomResource(nil, u.Object, s.Values))...)
	errs = append(errs, objectmeta.Validate(ctx, nil, u.Object, s.Structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.Structural, u.Object)...)
	errs = append(errs, s.validateRules(ctx, u, nil, errs)...)
	if len(errs) == 0 {
		errs = apivalidation.ValidateObjectMetaAccessor(u, k.namespaced, pathSegment, metadata)
	}
	return errs
}

// validateChange validates the update of an object. Errors in unchanged fields are ignored (ratcheting).
func (s *kindSchema) validateChange(ctx context.Context, k *kind, u, old *unstructured.Unstructured) field.ErrorList {
	metadata := field.NewPath("metadata")
	correlated := common.NewCorrelatedObject(u.Object, old.Object, &model.Structural{Structural: s.Structural})
	errs := apivalidation.ValidateObjectMetaAccessor(u, k.namespaced, pathSegment, metadata)
	errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(u, old, metadata)...)
	errs = append(errs, s.validateOwn(ctx, u, old, correlated)...)
	return errs
}

// sorted puts errors in an order that is always the same; the API server has them in any.
func sorted(errs field.ErrorList) field.ErrorList {
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// pathSegment says what keeps a name from being part of a URL.
func pathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

// validateOwn is what custom resources are validated for beyond what every object is.
func (s *kindSchema) validateOwn(ctx context.Context, u, old *unstructured.Unstructured, correlated *common.CorrelatedObject) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaAccessorUpdate(u, old, field.NewPath("metadata"))
	errs = append(errs, sorted(validation.ValidateCustomResourceUpdate(nil, u.Object, old.Object, s.Values, validation.WithRatcheting(correlated)))...)
	errs = append(errs, objectmeta.Validate(ctx, nil, u.Object, s.Structural, false)...)
	if len(listtype.ValidateListSetsAndMaps(nil, s.Structural, old.Object)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.Structural, u.Object)...)
	}
	return append(errs, s.validateRules(ctx, u, old.Object, errs, cel.WithRatcheting(correlated))...)
}

// validateRules evaluates CEL, unless the object is so wrong already that rules would stumble.
func (s *kindSchema) validateRules(
	ctx context.Context, u *unstructured.Unstructured, old map[string]any, errs field.ErrorList, options ...cel.Option,
) field.ErrorList {
	if s.Rules == nil {
		return nil
	}
	blocking := []field.ErrorType{
		field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
	}
	if slices.ContainsFunc(errs, func(e *field.Error) bool { return slices.Contains(blocking, e.Type) }) {
		return field.ErrorList{field.Invalid(nil, nil,
			"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
	}
	var oldValue any // a nil map in it would be no nil
	if old != nil {
		oldValue = old
	}
	broken, _ := s.Rules.Validate(ctx, nil, s.Structural, u.Object, oldValue, celconfig.RuntimeCELCostBudget, options...)
	return broken
}

// finalizerWarnings are what the API server says about new finalizers that could be mistaken for others'.
func finalizerWarnings(u, old *unstructured.Unstructured) (warnings []string) {
	added := sets.New(u.GetFinalizers()...)
	if old != nil {
		added = added.Difference(sets.New(old.GetFinalizers()...))
	}
	for _, name := range sets.List(added) {
		for _, problem := range utilvalidation.IsQualifiedName(name) {
			warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s", name, problem))
		}
		if strings.Contains(name, "/") || slices.Contains(standardFinalizers, name) {
			continue
		}
		advice := "prefer a domain-qualified finalizer name"
		if strings.Contains(name, ".") {
			advice += " including a path (/)"
		}
		warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s to avoid accidental conflicts with other finalizer writers", name, advice))
	}
	return warnings
}

var standardFinalizers = []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, "kubernetes"}

// sameButMetadata reports whether two objects differ only in metadata. Otherwise the API server increments the generation.
func sameButMetadata(a, b map[string]any) bool {
	without := func(object map[string]any) map[string]any {
		rest := map[string]any{}
		for key, value := range object {
			if key != "metadata" {
				rest[key] = value
			}
		}
		return rest
	}
	return apiequality.Semantic.DeepEqual(without(a), without(b))
}
