package plugin

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
)

// completionPatience is how long a shell waits for names.
const completionPatience = 3 * time.Second

// complete offers the values of a flag.
func complete(command *cobra.Command, flag string, values ...string) {
	// It fails only for a flag that does not exist or is completed already.
	_ = command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completePolicy offers the policies as the only argument.
func (p *plugin) completePolicy(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.names(command.Context(), policyKind), cobra.ShellCompDirectiveNoFileComp
}

// others offers the objects of a kind that are not named yet, unless a selection is given.
func (p *plugin) others(command *cobra.Command, which *selection, kind string, named []string) []cobra.Completion {
	if which.given() {
		return nil
	}
	return slices.DeleteFunc(p.names(command.Context(), kind), func(name string) bool { return slices.Contains(named, name) })
}

// completeTargets offers a kind, and then any number of names; or names after KIND/.
func (p *plugin) completeTargets(command *cobra.Command, which *selection, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 && !strings.Contains(args[0], "/") {
		return p.others(command, which, args[0], args[1:]), cobra.ShellCompDirectiveNoFileComp
	}
	return p.completeTarget(command, nil, word)
}

// completeTarget offers kinds, and then names; or names after KIND/.
func (p *plugin) completeTarget(command *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	prefix, _, slash := strings.Cut(word, "/")
	switch {
	case len(args) == 1:
		return p.names(command.Context(), args[0]), cobra.ShellCompDirectiveNoFileComp
	case len(args) == 0 && slash:
		var found []string
		for _, name := range p.names(command.Context(), prefix) {
			found = append(found, prefix+"/"+name)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	case len(args) == 0:
		return []string{"svm", "svmop", "svmpool"}, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// names returns the names of the objects of a kind.
func (p *plugin) names(ctx context.Context, kind string) []string {
	list := p.metadata(ctx, kind)
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return names
}

// labels returns the labels of the objects of a kind, as KEY=VALUE.
func (p *plugin) labels(ctx context.Context, kind string) []string {
	known := map[string]bool{}
	for _, object := range p.metadata(ctx, kind) {
		for key, value := range object.Labels {
			known[key+"="+value] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// metadata returns the metadata of the objects of a kind, in any form that kubectl accepts. Errors are ignored in shell completion.
func (p *plugin) metadata(ctx context.Context, word string) []metav1.PartialObjectMetadata {
	c, err := p.connect()
	if err != nil || word == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	versioned, resource := schema.ParseResourceArg(strings.ToLower(word))
	kind, err := c.RESTMapper().KindFor(resource.WithVersion(""))
	if err != nil && versioned != nil {
		kind, err = c.RESTMapper().KindFor(*versioned)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil || c.List(ctx, list, client.InNamespace(c.namespace)) != nil {
		return nil
	}
	return list.Items
}
