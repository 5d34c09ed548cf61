package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/resource"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// kindOf returns Sallyport's kind of that name, as kubectl accepts it, with optional version and group; "" for other kinds.
func kindOf(word string) string {
	word = strings.TrimSuffix(strings.ToLower(word), "."+v1alpha1.GroupName)
	word = strings.TrimSuffix(word, "."+v1alpha1.GroupVersion.Version)
	for i := range v1alpha1.Kinds {
		if k := &v1alpha1.Kinds[i]; slices.Contains([]string{k.ShortName, strings.ToLower(k.Name), k.Resource()}, word) {
			return k.Name
		}
	}
	return ""
}

// machineName parses an argument that names a VirtualMachine: web-1, svm/web-1, virtualmachine/web-1.
func machineName(argument string) (string, error) { return nameOf(argument, machineKind, "svm") }

// nameOf parses an argument that names an object of a kind: NAME or KIND/NAME.
func nameOf(argument, kind, short string) (string, error) {
	word, name, found := strings.Cut(argument, "/")
	switch {
	case !found:
		return argument, nil
	case kindOf(word) != kind:
		return "", fmt.Errorf("%s is not a %s: use NAME or %s/NAME", argument, kind, short)
	case name == "" || strings.Contains(name, "/"):
		return "", fmt.Errorf("invalid %[2]s %[1]s: specify exactly one name", argument, kind)
	}
	return name, nil
}

// target parses KIND NAME, KIND/NAME, or the NAME of a VirtualMachine. The kind is empty if it is not Sallyport's.
func target(args []string) (kind, name string, err error) {
	word, name := machineKind, args[0]
	switch before, after, found := strings.Cut(args[0], "/"); {
	case len(args) == 2 && !found:
		word, name = args[0], args[1]
	case len(args) == 2:
		return "", "", fmt.Errorf("%s already contains a name: use KIND NAME or KIND/NAME", args[0])
	case found:
		word, name = before, after
	case kindOf(name) == policyKind:
		return "", "", fmt.Errorf("specify a %s, such as rego/defaults", policyKind)
	case kindOf(name) != "":
		return "", "", fmt.Errorf("specify a %s, such as %s/web-1", kindOf(name), name)
	}
	kind = kindOf(word)
	if name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("invalid argument %s: specify exactly one %s", strings.Join(args, " "), cmp.Or(kind, "object"))
	}
	return kind, name, nil
}

// found is an existing object and its mapping.
type found struct {
	*unstructured.Unstructured
	mapping *meta.RESTMapping
}

// name returns the object's name as kubectl prints it.
func (f *found) name() string { return f.mapping.Resource.GroupResource().String() + "/" + f.GetName() }

// pageSize is how many objects the API server lists at once, as for kubectl.
const pageSize = 500

// find reads the objects of KIND NAME, KIND/NAME, or KIND with a selection, as kubectl does. It prints a message if a selection is
// empty.
func (p *plugin) find(namespace string, which selection, args ...string) ([]found, error) {
	infos, err := resource.NewBuilder(p.flags).Unstructured().NamespaceParam(namespace).DefaultNamespace().RequestChunksOf(pageSize).
		LabelSelectorParam(which.labels).FieldSelectorParam(which.fields).SelectAllParam(which.all).
		ResourceTypeOrNameArgs(false, args...).RequireObject(true).Do().Infos()
	if err != nil {
		return nil, err
	}
	var all []found
	namespaced := true
	for _, info := range infos {
		add := func(object runtime.Object) error {
			u, ok := object.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("%s cannot be read as an object", strings.Join(args, " "))
			}
			all = append(all, found{u, info.Mapping})
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
