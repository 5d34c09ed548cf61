package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// completionPatience is how long a shell waits for names.
const completionPatience = 3 * time.Second

// CompleteValues offers the values of a flag.
func CompleteValues(command *cobra.Command, flag string, values ...string) {
	CompleteFlag(command, flag, func(context.Context, []string) []string { return values })
}

// CompleteFlag offers the values of a flag that depend on the cluster or on the arguments.
func CompleteFlag(command *cobra.Command, flag string, values func(ctx context.Context, args []string) []string) {
	// It fails only for a flag that does not exist or is completed already.
	_ = command.RegisterFlagCompletionFunc(flag, func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return values(command.Context(), args), cobra.ShellCompDirectiveNoFileComp
	})
}

// CompleteOne offers the objects of a kind as the only argument.
func (p *Plugin) CompleteOne(kind string) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.NamesOf(command.Context(), kind), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteOthers offers the objects of a kind that are not named yet, unless a selection is given.
func (p *Plugin) CompleteOthers(command *cobra.Command, which *Selection, kind string, named []string) []cobra.Completion {
	if which.Given() {
		return nil
	}
	return slices.DeleteFunc(p.NamesOf(command.Context(), kind), func(name string) bool { return slices.Contains(named, name) })
}

// completeTargets offers a kind, and then any number of names; or names after KIND/.
func (p *Plugin) completeTargets(command *cobra.Command, which *Selection, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 && !strings.Contains(args[0], "/") {
		return p.CompleteOthers(command, which, args[0], args[1:]), cobra.ShellCompDirectiveNoFileComp
	}
	return p.CompleteTarget(command, nil, word)
}

// CompleteTarget offers kinds, and then names; or names after KIND/.
func (p *Plugin) CompleteTarget(command *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	prefix, _, slash := strings.Cut(word, "/")
	switch {
	case len(args) == 1:
		return p.NamesOf(command.Context(), args[0]), cobra.ShellCompDirectiveNoFileComp
	case len(args) == 0 && slash:
		var found []string
		for _, name := range p.NamesOf(command.Context(), prefix) {
			found = append(found, prefix+"/"+name)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	case len(args) == 0:
		return []string{"svm", "svmop", "svmpool"}, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// NamesOf returns the names of the objects of a kind.
func (p *Plugin) NamesOf(ctx context.Context, kind string) []string {
	list := p.MetadataOf(ctx, kind)
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return names
}

func (p *Plugin) labels(ctx context.Context, kind string) []string {
	known := map[string]bool{}
	for _, object := range p.MetadataOf(ctx, kind) {
		for key, value := range object.Labels {
			known[key+"="+value] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// MetadataOf returns the metadata of the objects of a kind, in any form that kubectl accepts. Errors are ignored in shell completion.
func (p *Plugin) MetadataOf(ctx context.Context, word string) []metav1.PartialObjectMetadata {
	c, err := p.Connect()
	if err != nil || word == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	if own := KindOf(word); own != "" { // KubeVirt has kinds of the same names
		word = own + "." + v1alpha1.GroupName
	}
	versioned, resource := schema.ParseResourceArg(strings.ToLower(word))
	kind, err := c.RESTMapper().KindFor(resource.WithVersion(""))
	if err != nil && versioned != nil {
		kind, err = c.RESTMapper().KindFor(*versioned)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil || c.List(ctx, list, client.InNamespace(c.Namespace)) != nil {
		return nil
	}
	return list.Items
}

// CompleteNames offers the names of objects of a kind as values of a flag.
func (p *Plugin) CompleteNames(command *cobra.Command, flag, kind string) {
	CompleteFlag(command, flag, func(ctx context.Context, _ []string) []string { return p.NamesOf(ctx, kind) })
}
