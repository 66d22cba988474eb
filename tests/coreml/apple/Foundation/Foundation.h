/* Foundation's interface as far as src/coreml/coreml.m uses it, in our own words: enough to check types, selectors and availability
 * with Apple's target on a machine without Apple's SDK. */
#ifndef MILKIT_TESTS_FOUNDATION_H
#define MILKIT_TESTS_FOUNDATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef long NSInteger;
typedef unsigned long NSUInteger;
#define BOOL bool
#define nil ((id)0)
#define NS_ENUM(type, name)                                                                                  \
    enum name : type name;                                                                                   \
    enum name : type

@class NSString, NSError, NSArray, NSNumber, NSDictionary, NSSet, NSURL;
@protocol NSObject
- (instancetype)retain;
- (oneway void)release;
- (instancetype)autorelease;
- (BOOL)isKindOfClass:(Class)class;
@end
__attribute__((objc_root_class))
@interface NSObject<NSObject>
+ (instancetype)alloc;
+ (Class)class;
- (instancetype)init;
- (void)dealloc;
@end
typedef struct {
    unsigned long state;
    id __unsafe_unretained *itemsPtr;
    unsigned long *mutationsPtr;
    unsigned long extra[5];
} NSFastEnumerationState;
@interface NSString : NSObject
+ (instancetype)stringWithUTF8String:(const char *)text;
@property(readonly) const char *UTF8String;
@end
@interface NSNumber : NSObject
+ (NSNumber *)numberWithLongLong:(long long)x;
@property(readonly) NSInteger integerValue;
@end
@interface NSArray<T> : NSObject
+ (instancetype)array;
@property(readonly) NSUInteger count;
- (T)objectAtIndex:(NSUInteger)i;
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState *)s
                                  objects:(id __unsafe_unretained[])o
                                    count:(NSUInteger)n;
@end
@interface NSMutableArray<T> : NSArray <T>
- (void)addObject:(T)x;
@end
@interface NSSet<T> : NSObject
@end
@interface NSMutableSet<T> : NSSet <T>
- (void)addObject:(T)x;
@end
@interface NSDictionary<K, V> : NSObject
+ (instancetype)dictionary;
- (V)objectForKey:(K)key;
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState *)s
                                  objects:(id __unsafe_unretained[])o
                                    count:(NSUInteger)n;
@end
@interface NSMutableDictionary<K, V> : NSDictionary <K, V>
- (void)setObject:(V)x forKey:(K)key;
@end
extern NSString *const NSUnderlyingErrorKey;
@interface NSError : NSObject
@property(readonly) NSInteger code;
@property(readonly) NSString *domain;
@property(readonly) NSString *localizedDescription;
@property(readonly) NSDictionary<NSString *, id> *userInfo;
@end
@interface NSURL : NSObject
+ (NSURL *)fileURLWithPath:(NSString *)path;
@property(readonly) NSString *path;
@end
@interface NSException : NSObject
@property(readonly) NSString *name;
@property(readonly) NSString *reason;
@end

#endif
