package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// KindOf returns Sallyport's kind of that name, as kubectl accepts it, with optional version and group; "" for other kinds.
func KindOf(word string) string {
	word = strings.TrimSuffix(strings.ToLower(word), "."+v1alpha1.GroupName)
	word = strings.TrimSuffix(word, "."+v1alpha1.GroupVersion.Version)
	for i := range v1alpha1.Kinds {
		if k := &v1alpha1.Kinds[i]; slices.Contains([]string{k.ShortName, strings.ToLower(k.Name), k.Resource()}, word) {
			return k.Name
		}
	}
	return ""
}

// Found is an existing object and its mapping.
type Found struct {
	*unstructured.Unstructured
	Mapping *meta.RESTMapping
}

// Name returns the object's name as kubectl prints it.
func (f *Found) Name() string { return f.Mapping.Resource.GroupResource().String() + "/" + f.GetName() }

// PageSize is how many objects the API server lists at once, as for kubectl.
const PageSize = 500

// Find reads the objects of KIND NAME, KIND/NAME, or KIND with a selection, as kubectl does. It prints a message if a selection is
// empty.
func (p *Plugin) Find(namespace string, which Selection, args ...string) ([]Found, error) {
	infos, err := resource.NewBuilder(p.Flags).Unstructured().NamespaceParam(namespace).DefaultNamespace().RequestChunksOf(PageSize).
		LabelSelectorParam(which.Labels).FieldSelectorParam(which.fields).SelectAllParam(which.all).
		ResourceTypeOrNameArgs(false, args...).RequireObject(true).Do().Infos()
	if err != nil {
		return nil, err
	}
	var all []Found
	namespaced := true
	for _, info := range infos {
		add := func(object runtime.Object) error {
			u, ok := object.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("%s cannot be read as an object", strings.Join(args, " "))
			}
			all = append(all, Found{u, info.Mapping})
			return nil
		}
		if meta.IsListType(info.Object) {
			err = meta.EachListItem(info.Object, add)
		} else {
			err = add(info.Object)
		}
		if err != nil {
			return nil, err
		}
		namespaced = namespaced && info.Namespaced()
	}
	switch {
	case len(all) > 0:
	case namespaced:
		fmt.Fprintf(p.ErrOut, "No resources found in %s namespace.\n", namespace)
	default:
		fmt.Fprintln(p.ErrOut, "No resources found")
	}
	return all, nil
}

// Annotate writes annotations of an object, and removes those that are nil. The UID is a precondition, so that they do not reach another
// object of the same name.
func Annotate(ctx context.Context, c client.Client, object Found, annotations map[string]any, dryRun string) error {
	if dryRun == DryRunClient {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.GetUID(), "annotations": annotations}})
	if err != nil {
		return err
	}
	return Writer(c, dryRun).Patch(ctx, object.Unstructured, client.RawPatch(types.MergePatchType, patch))
}

// Selection are the flags that select objects, the same as of kubectl.
type Selection struct {
	Labels, fields string
	all            bool
}

// AddFlags adds the flags to a command; kind returns the kind of its arguments, whose labels are completed.
func (s *Selection) AddFlags(p *Plugin, command *cobra.Command, kind func(args []string) string) {
	f := command.Flags()
	f.StringVarP(&s.Labels, "selector", "l", "", "label selector for the objects, as in kubectl get")
	f.StringVar(&s.fields, "field-selector", "", "field selector for the objects, as in kubectl get")
	f.BoolVar(&s.all, "all", false, "select all objects of the namespace")
	CompleteFlag(command, "selector", func(ctx context.Context, args []string) []string { return p.labels(ctx, kind(args)) })
	CompleteValues(command, "field-selector")
}

// AddTargetFlags adds the flags to a command with the arguments KIND NAME..., of which it completes the names and labels. There are
// that many arguments before KIND.
func (s *Selection) AddTargetFlags(p *Plugin, command *cobra.Command, before int) {
	s.AddFlags(p, command, func(args []string) string {
		return strings.Join(args[min(before, len(args)):min(before+1, len(args))], "")
	})
	command.ValidArgsFunction = func(command *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return p.completeTargets(command, s, args[min(before, len(args)):], word)
	}
}

// Given reports whether a flag selects objects. An empty selector, for example from an unset variable, does not: it would select all
// objects.
func (s *Selection) Given() bool { return s.all || s.selects() }

func (s *Selection) selects() bool { return strings.TrimSpace(s.Labels+s.fields) != "" }

// Check returns an error if flags contradict each other, or if there are names too.
func (s *Selection) Check(names int) error {
	switch {
	case s.all && s.selects():
		return errors.New("cannot set --all and a selector at the same time")
	case s.all && names > 0:
		return errors.New("name cannot be provided when --all is specified")
	case s.selects() && names > 0:
		return errors.New("name cannot be provided when a selector is specified")
	}
	if _, err := labels.Parse(s.Labels); err != nil {
		return fmt.Errorf("--selector %q: %w", s.Labels, err)
	}
	if _, err := fields.ParseSelector(s.fields); err != nil {
		return fmt.Errorf("--field-selector %q: %w", s.fields, err)
	}
	return nil
}

// Args requires names of objects, or a selection.
func (s *Selection) Args(what string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		err := s.Check(len(args))
		if len(args) == 0 && !s.Given() {
			err = fmt.Errorf("specify at least one %s by name, -l or --all", what)
		}
		if err != nil {
			return UsageError(command, err)
		}
		return nil
	}
}

// NamesIn counts the names in KIND NAME... or KIND/NAME...
func NamesIn(args []string) int {
	if len(args) > 0 && !strings.Contains(args[0], "/") {
		return len(args) - 1
	}
	return len(args)
}
