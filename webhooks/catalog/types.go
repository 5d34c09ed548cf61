package catalog

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// kindTypes has the types of Sallyport's and Kubernetes' kinds. They are those of the Go structs that the kinds are generated from.
var kindTypes = struct {
	scheme *runtime.Scheme
	known  sync.Map // from GroupVersionKind to *engine.Type
}{scheme: runtime.NewScheme()}

func init() {
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		utilruntime.Must(add(kindTypes.scheme))
	}
}

// typeOf returns the type of the objects of a kind. Of other kinds than Sallyport's and Kubernetes' only the metadata is known.
func typeOf(apiVersion, kind string) *engine.Type {
	gvk := apischema.FromAPIVersionAndKind(apiVersion, kind)
	if known, ok := kindTypes.known.Load(gvk); ok {
		return known.(*engine.Type)
	}
	object, err := kindTypes.scheme.New(gvk)
	if err != nil { // not stored: there is no end to the kinds of requests
		return foreignType()
	}
	// The API server removes null from custom resources where the definition does not allow it.
	known, _ := kindTypes.known.LoadOrStore(gvk, newTypes(gvk.Group != v1alpha1.GroupName).of(reflect.TypeOf(object).Elem()))
	return known.(*engine.Type)
}

// foreignType is the type of the objects of an unknown kind.
var foreignType = sync.OnceValue(func() *engine.Type {
	return newTypes(true).of(reflect.TypeFor[metav1.PartialObjectMetadata]())
})

// goTypes makes types of Go types.
type goTypes struct {
	nullable bool // a nil value is encoded as null
	structs  map[reflect.Type]*engine.Type
}

func newTypes(nullable bool) *goTypes {
	return &goTypes{nullable: nullable, structs: map[reflect.Type]*engine.Type{}}
}

// encoded are the Go types with an encoding of their own that policies may rely on; others may be anything.
var encoded = map[reflect.Type]engine.Type{
	reflect.TypeFor[metav1.Time]():        {Kind: engine.StringType, Nullable: true},
	reflect.TypeFor[metav1.MicroTime]():   {Kind: engine.StringType, Nullable: true},
	reflect.TypeFor[metav1.Duration]():    {Kind: engine.StringType},
	reflect.TypeFor[resource.Quantity]():  {Kind: engine.StringOrNumber},
	reflect.TypeFor[intstr.IntOrString](): {Kind: engine.StringOrNumber},
}

func (g *goTypes) of(t reflect.Type) *engine.Type {
	if own, ok := encoded[t]; ok {
		return &own
	}
	if t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return &engine.Type{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		pointed := *g.of(t.Elem())
		pointed.Nullable = pointed.Nullable || g.nullable
		return &pointed
	case reflect.Struct:
		return g.ofStruct(t)
	case reflect.Map:
		return &engine.Type{Kind: engine.ObjectType, Nullable: g.nullable, Each: g.of(t.Elem())}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return &engine.Type{Kind: engine.StringType, Nullable: g.nullable}
		}
		return &engine.Type{Kind: engine.ListType, Nullable: g.nullable, Each: g.of(t.Elem())}
	case reflect.String:
		return &engine.Type{Kind: engine.StringType}
	case reflect.Bool:
		return &engine.Type{Kind: engine.BooleanType}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &engine.Type{Kind: engine.IntegerType}
	case reflect.Float32, reflect.Float64:
		return &engine.Type{Kind: engine.NumberType}
	}
	return &engine.Type{}
}

// ofStruct makes the type of a struct, whose fields may refer to it. Metadata is that of all kinds.
func (g *goTypes) ofStruct(t reflect.Type) *engine.Type {
	if known := g.structs[t]; known != nil {
		return known
	}
	if t == reflect.TypeFor[metav1.ObjectMeta]() && !g.nullable {
		return newTypes(true).ofStruct(t)
	}
	made := &engine.Type{Kind: engine.ObjectType, Fields: map[string]*engine.Type{}}
	g.structs[t] = made
	for i := range t.NumField() {
		f := t.Field(i)
		switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
		case name == "" && f.Anonymous:
			maps.Copy(made.Fields, g.of(f.Type).Fields)
		case name != "" && name != "-" && f.IsExported():
			made.Fields[name] = g.of(f.Type)
		}
	}
	return made
}
