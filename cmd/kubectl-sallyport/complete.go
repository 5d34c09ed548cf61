package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// completionPatience is how long a shell waits for names.
const completionPatience = 3 * time.Second

// complete offers the values of a flag.
func complete(command *cobra.Command, flag string, values ...string) {
	// It fails only for a flag that does not exist or is completed already.
	_ = command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeMachines offers the VirtualMachines that are not named yet.
func (p *plugin) completeMachines(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names := slices.DeleteFunc(p.names(command.Context(), machineKind), func(name string) bool { return slices.Contains(args, name) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeTarget offers kinds, and then names; or names after KIND/.
func (p *plugin) completeTarget(command *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	prefix, _, slash := strings.Cut(word, "/")
	switch {
	case len(args) == 1:
		return p.names(command.Context(), kindOf(args[0])), cobra.ShellCompDirectiveNoFileComp
	case len(args) == 0 && slash:
		var found []string
		for _, name := range p.names(command.Context(), kindOf(prefix)) {
			found = append(found, prefix+"/"+name)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	case len(args) == 0:
		return []string{"svm", "svmop"}, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// names of the objects of a kind. A shell is not told of errors.
func (p *plugin) names(ctx context.Context, kind string) []string {
	c, err := p.connect()
	if err != nil || kind == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	if err := c.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names
}
